"""An AMQP connection: its input, login, attaches and events."""
