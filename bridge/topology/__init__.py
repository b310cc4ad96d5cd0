"""The compiler from entities to RabbitMQ resources, without I/O."""
