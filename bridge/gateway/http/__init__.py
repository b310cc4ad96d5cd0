"""HTTP on the gateway's port, and AMQP in WebSockets."""
