"""Policies: RabbitMQ policies and definitions from Service Bus definitions."""
