"""AMQP 1.0 message <-> record in RabbitMQ: exact in both directions, readable from the native side.

Strategy. A value that 0-9-1 can represent exactly becomes a basic property or a header, under the
name that a RabbitMQ user expects. When a section holds a value that 0-9-1 cannot represent (a uuid,
a ulong, a described value, a millisecond timestamp...), the whole section also travels unchanged in
the header `headers.SECTIONS`, and takes precedence on the way out; the readable form stays for
native consumers. `fields.py` holds the table of types.
"""
