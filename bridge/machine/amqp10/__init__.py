"""A sans-IO AMQP 1.0 server endpoint: bytes and the time in, events and bytes out."""
