"""The one compiler: entities in, RabbitMQ resources out. Pure."""
