"""The bridge: Azure Service Bus on RabbitMQ."""
