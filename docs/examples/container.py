"""RabbitMQ and the bridge in Docker, by testcontainers; needs Docker and the image `busbridge`."""

from busbridge.client import ServiceBusClient, ServiceBusMessage
from busbridge.client.management import ServiceBusAdministrationClient
from busbridge.testing.container import BusbridgeContainer

with BusbridgeContainer() as running:
    with ServiceBusAdministrationClient(running.rabbitmq_url) as administration:
        administration.create_queue("orders")
    client = ServiceBusClient.from_connection_string(running.rabbitmq_url)
    with client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("two plums"))
    print(running.connection_string)  # for an Azure SDK
