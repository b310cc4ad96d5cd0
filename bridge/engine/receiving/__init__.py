"""Receiving: receivers with credit, and the queues of RabbitMQ that messages are fetched from."""
