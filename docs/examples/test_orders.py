"""An application's own test: the pytest plugin has a RabbitMQ, a bridge and a queue for it."""

from collections.abc import Callable

from busbridge.client import ServiceBusClient, ServiceBusMessage


def test_an_order_arrives(busbridge_url: str, busbridge_queue: Callable[..., str]) -> None:
    """What is sent is received, under the first number."""
    queue = busbridge_queue(max_delivery_count=3)
    with ServiceBusClient.from_connection_string(busbridge_url) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("two apples"))
        with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
            (message,) = receiver.receive_messages()
            assert (message.sequence_number, str(message)) == (1, "two apples")
            receiver.complete_message(message)
