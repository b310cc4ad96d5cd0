"""Private RabbitMQ nodes, as child processes."""
