"""The library straight on RabbitMQ: make a queue, send, receive, complete."""

import os

from busbridge.client import ServiceBusClient, ServiceBusMessage
from busbridge.client.management import ServiceBusAdministrationClient

url = os.environ.get("RABBITMQ_URL", "amqp://guest:guest@localhost:5672/")
with ServiceBusAdministrationClient(url) as administration:
    administration.create_queue("fruit", max_delivery_count=3)
with ServiceBusClient.from_connection_string(url) as client:
    with client.get_queue_sender("fruit") as sender:
        sender.send_messages(ServiceBusMessage("two figs"))
    with client.get_queue_receiver("fruit", max_wait_time=5) as receiver:
        for message in receiver:
            print(message.sequence_number, message)
            receiver.complete_message(message)
with ServiceBusAdministrationClient(url) as administration:
    administration.delete_queue("fruit")
