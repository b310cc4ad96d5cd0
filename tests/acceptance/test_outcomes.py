"""What senders are told when RabbitMQ goes away in the middle: accepted, refused, or nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pamqp.base
import pamqp.commands
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError

from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of
from tests.acceptance.test_serve import ready
from tests.acceptance.told import Told, take_all
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.relay import Relay
from tests.fixtures.waiting import eventually

ENTITIES = {"orders": {}}

CUTS = 8
WITHIN_S = 120.0


@pytest.mark.long
def test_what_is_told_refused_as_connections_end_is_never_stored(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """A send under way is then the end of its link; one that comes later is refused for sure."""
    own = start_broker()
    assert own.node is not None
    bridge = start_bridge(on=own, vhost="/")
    told = Told()
    with told.senders(bridge, 8):
        for _ in range(CUTS):
            before = len(told.accepted)
            eventually(lambda count=before: len(told.accepted) > count + 100, within_s=WITHIN_S)  # type: ignore[misc]
            own.node.rabbitmqctl("close_all_connections", "test")
        before = len(told.accepted)
        eventually(lambda: len(told.accepted) > before + 100, within_s=WITHIN_S)
    told.check(lambda: take_all(bridge))


@pytest.fixture
def held(
    broker: Broker, vhost: str, start_bridge: StartBridge
) -> Iterator[tuple[Relay, Bridge, threading.Event]]:
    """A bridge whose sends RabbitMQ does not read while an event is set."""
    is_holding = threading.Event()

    def holds(method: pamqp.base.Frame) -> bool:
        is_send = isinstance(method, pamqp.commands.Basic.Publish) and method.exchange == "orders"
        return is_holding.is_set() and is_send

    with Relay(broker.url, holds=holds) as relay:
        yield relay, start_bridge(on=Broker(relay.url, broker.management_url)), is_holding


def test_a_send_that_is_lost_with_its_connection_ends_its_link(
    held: tuple[Relay, Bridge, threading.Event],
) -> None:
    """To the SDK that is a fault of the connection; the same sender's next send is accepted."""
    relay, bridge, is_holding = held
    with client_of(bridge) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        is_holding.set()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(sender.send_messages, ServiceBusMessage("lost"))
            assert relay.holding.wait(WITHIN_S)
            is_holding.clear()
            relay.cut()
            with pytest.raises(ServiceBusConnectionError):
                sending.result()
        eventually(lambda: ready(bridge)[0] == 200, within_s=WITHIN_S)
        sender.send_messages(ServiceBusMessage("after"))
    assert take_all(bridge) == {"before", "after"}


@pytest.mark.long
def test_a_send_that_is_never_confirmed_ends_its_link(
    held: tuple[Relay, Bridge, threading.Event],
) -> None:
    """The link's end says neither accepted nor refused, as RabbitMQ may store the message later."""
    relay, bridge, is_holding = held
    with client_of(bridge) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        is_holding.set()
        with pytest.raises(ServiceBusConnectionError):
            sender.send_messages(ServiceBusMessage("stored later"))
        relay.release()
        sender.send_messages(ServiceBusMessage("after"))
    assert take_all(bridge) == {"before", "stored later", "after"}
