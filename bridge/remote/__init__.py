"""A client of any Service Bus namespace: Azure's, Microsoft's emulator's, a bridge's.

    address = RemoteAddress.of(connection_string)
    async with RemoteNamespace(address, credential_in(connection_string)) as namespace:
        sender = await namespace.sender("orders")
        await sender.send([RemoteMessage.of(data=b"hello")])

Messages keep their sections as bytes, so that one that is moved from a namespace to another arrives
as it was sent. azure-servicebus is no base for that: it fails on a long above 2^31 and on
timestamps, and turns symbols and binaries into strings.
"""
