"""RabbitMQ as administrators see it: its management API, and `rabbitmqctl`."""
