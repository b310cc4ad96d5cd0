"""Wire formats: AMQP 0-9-1, AMQP 1.0 and the mapping between them. No I/O."""
