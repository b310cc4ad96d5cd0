"""RabbitMQ for the tests: other releases, and nodes that a test may kill."""
