"""Sending: messages from gateways are published, and confirmed by RabbitMQ."""
