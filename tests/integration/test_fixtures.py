"""The tests' own RabbitMQ: fresh virtual hosts, and nodes that survive a kill with their data."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pytest

from tests.fixtures.broker import Broker


def test_a_virtual_host_is_fresh(pika_connection: pika.BlockingConnection) -> None:
    """Nothing but RabbitMQ's own exchanges is in it: a queue may be declared, and is empty."""
    declared = pika_connection.channel().queue_declare("orders", durable=True)

    assert declared.method.message_count == 0


@pytest.mark.long
def test_a_killed_node_keeps_what_it_confirmed(start_broker: Callable[[], Broker]) -> None:
    """A confirmed message is there again after a kill and a start of the same node.

    The fixture keeps no more than RabbitMQ does: what was declared last before a kill may be
    forgotten (`bridge.broker.declaration_fence`), so another queue is declared after the one of the
    message.
    """
    broker = start_broker()
    assert broker.node is not None
    with broker.fresh_vhost() as vhost:
        parameters = pika.URLParameters(broker.url_of(vhost))
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            channel.queue_declare("last", durable=True)
            persistent = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "orders", b"kept", persistent, mandatory=True)
        broker.node.kill()
        broker.node.start()
        with pika.BlockingConnection(parameters) as connection:
            # A get so soon after the start may find the queue without its leader, and so empty.
            deliveries = connection.channel().consume("orders", inactivity_timeout=120)
            _, _, body = next(deliveries)

        assert body == b"kept"
