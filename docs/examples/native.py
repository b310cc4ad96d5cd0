"""A native RabbitMQ client on the same queue: an Azure SDK receives what it publishes, and back."""

import os

import pika

url = os.environ.get("RABBITMQ_URL", "amqp://guest:guest@localhost:5672/")
with pika.BlockingConnection(pika.URLParameters(url)) as connection:
    channel = connection.channel()
    properties = pika.BasicProperties(message_id="3", content_type="text/plain")
    channel.basic_publish("orders", "", b"two plums", properties)
    for method, properties, body in channel.consume("orders", inactivity_timeout=10):
        if method is None:
            break
        print(properties.headers["x-opt-sequence-number"], properties.message_id, body)
        channel.basic_ack(method.delivery_tag)
