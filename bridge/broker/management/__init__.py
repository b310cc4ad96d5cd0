"""Administration of RabbitMQ, by its management API and by `rabbitmqctl`."""
