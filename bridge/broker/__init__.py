"""RabbitMQ over the network: the only floor that talks to a broker."""
