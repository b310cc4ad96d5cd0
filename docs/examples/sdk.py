"""The unmodified Azure SDK against the bridge: send, receive, complete."""

from azure.servicebus import ServiceBusClient, ServiceBusMessage

CONNECTION_STRING = (
    "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
)
with ServiceBusClient.from_connection_string(CONNECTION_STRING) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("two apples", message_id="1"))
    with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        for message in receiver:
            print(message.sequence_number, message.enqueued_time_utc, str(message))
            receiver.complete_message(message)
