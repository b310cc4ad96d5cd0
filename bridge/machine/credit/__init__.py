"""Credit: what receivers ask for, and what RabbitMQ is asked for on their behalf."""
