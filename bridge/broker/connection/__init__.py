"""One connection to RabbitMQ and the channels on it."""
