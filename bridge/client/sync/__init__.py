"""The synchronous lane, on pika."""
