"""Credit: the receivers' demand for messages, and the fetches from RabbitMQ that meet it."""
