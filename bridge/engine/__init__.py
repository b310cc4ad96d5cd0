"""The Service Bus verbs on RabbitMQ: the one entry for all gateways."""
