"""What becomes of each message of one queue of RabbitMQ, as a pure machine."""
