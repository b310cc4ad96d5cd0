"""AMQP 1.0 message <-> record in RabbitMQ: exact in both directions, readable from the native side.

Strategy. Whatever 0-9-1 can say exactly becomes a basic property or a header of its own, under the
name that a RabbitMQ user expects. When a section holds something that 0-9-1 cannot say (a uuid, a
ulong, a described value, a millisecond timestamp...), the whole section travels beside it as it
came, in the header `headers.SECTIONS`, and wins on the way out; the readable form stays for native
consumers. `fields.py` holds the table of types.
"""
