"""Receiving: demand, and the queues of RabbitMQ that meet it."""
