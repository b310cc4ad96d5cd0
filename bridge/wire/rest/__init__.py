"""Messages as the REST API of Service Bus writes them: headers and JSON to AMQP 1.0, and back."""
