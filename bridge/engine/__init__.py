"""The Service Bus verbs on RabbitMQ: the one way in for every gateway."""
