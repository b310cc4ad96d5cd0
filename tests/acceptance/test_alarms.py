"""RabbitMQ's alarms, memory and disk: sends are refused, what empties a queue goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusServerBusyError

from bridge.engine.sending.publisher import SILENT_S
from tests.acceptance.sdk import client_of, receive, send, take
from tests.acceptance.test_serve import ready
from tests.acceptance.told import Told, take_all
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long

ENTITIES = {"orders": {"LockDuration": "PT5M"}}

ALARMS = {
    "memory": (
        ("set_vm_memory_high_watermark", "0.000001"),
        ("set_vm_memory_high_watermark", "0.6"),
    ),
    "disk": (("set_disk_free_limit", "1000000GB"), ("set_disk_free_limit", "50MB")),
}
"""What begins an alarm, and what ends it."""

SILENT = "busbridge_queue_silent_since_seconds"
"""The metric of queues that give no answer."""

PATIENCE_S = 180.0

READ_BEFORE_S = 2.0
"""What RabbitMQ had read before its alarm is confirmed sooner."""


@pytest.mark.parametrize("alarm", ALARMS)
def test_an_alarm(
    start_broker: Callable[[], Broker], start_bridge: StartBridge, alarm: str
) -> None:
    """Sends are answered server-busy at once, settlement goes on; afterwards all is as before."""
    own = start_broker()
    assert own.node is not None
    begin, end = ALARMS[alarm]
    bridge = start_bridge(on=own, vhost="/")
    with (
        client_of(bridge) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        send(client, "orders", "first", "second", "third")
        first, second = receive(receiver, 2)
        own.node.rabbitmqctl(*begin)

        def is_refused() -> bool:
            """What RabbitMQ reads before it has raised its alarm is still stored.

            Of what it may still store nobody knows: after a while the link ends.
            """
            try:
                sender.send_messages(ServiceBusMessage("too much"))
            except ServiceBusServerBusyError:
                return True
            except ServiceBusConnectionError:
                return False
            return False

        eventually(is_refused)
        status, reasons = ready(bridge)
        assert status == 503
        assert any("alarm" in reason and alarm in reason for reason in reasons), reasons
        assert bridge.get("/health/live")

        receiver.complete_message(first)
        receiver.renew_message_lock(second)
        receiver.abandon_message(second)
        for expected in ("second", "third"):
            (message,) = take(receiver)
            assert str(message) == expected

        own.node.rabbitmqctl(*end)
        eventually(lambda: ready(bridge) == (200, []), within_s=120)
        send(client, "orders", "after")
        while str(take(receiver)[0]) != "after":
            pass


def test_what_is_told_refused_as_an_alarm_begins_is_never_stored(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """A send that RabbitMQ may still store waits, then its link ends: that says nothing of it."""
    own = start_broker()
    assert own.node is not None
    begin, end = ALARMS["disk"]
    bridge = start_bridge(on=own, vhost="/")
    told = Told()
    with told.senders(bridge, 8):
        eventually(lambda: len(told.accepted) > 200)
        own.node.rabbitmqctl(*begin)
        eventually(lambda: len(told.refused) > 100, within_s=120)
        own.node.rabbitmqctl(*end)
        before = len(told.accepted)
        eventually(lambda: len(told.accepted) > before + 200, within_s=120)
    assert {type(each) for each in told.errors} == {ServiceBusServerBusyError}
    told.check(partial(take_all, bridge))


def test_a_send_that_meets_an_alarm_is_accepted_when_the_alarm_ends(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """Its client waits, and need not send it again."""
    own = start_broker()
    assert own.node is not None
    begin, end = ALARMS["disk"]
    bridge = start_bridge(on=own, vhost="/")
    with client_of(bridge) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        own.node.rabbitmqctl(*begin)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(sender.send_messages, ServiceBusMessage("first in the alarm"))
            eventually(lambda: any("alarm" in reason for reason in ready(bridge)[1]))
            time.sleep(1.5 * READ_BEFORE_S)  # an answer would come within this time
            assert not sending.done()
            own.node.rabbitmqctl(*end)
            sending.result()
    assert take_all(bridge) == {"before", "first in the alarm"}


def test_an_alarm_is_told_in_the_log_and_is_no_silence_of_a_queue(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """A line when it begins, one when it ends; no queue that confirms nothing meanwhile is blamed.

    Nor is one when RabbitMQ reads again, and what it had not read is older than a silence.
    """
    own = start_broker()
    assert own.node is not None
    begin, end = ALARMS["disk"]
    bridge = start_bridge(on=own, vhost="/")
    blamed: set[str] = set()

    def look(until: Callable[[], bool]) -> None:
        """Watch whom health and metrics blame."""
        end_s = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < end_s
            text = bridge.get("/metrics")
            blamed.update(line for line in text.splitlines() if line.startswith(SILENT + "{"))
            time.sleep(0.1)

    def told(what: str) -> list[str]:
        return [line for line in bridge.lines if f" rabbitmq.alarm_{what} " in line]

    with client_of(bridge) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        own.node.rabbitmqctl(*begin)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(sender.send_messages, ServiceBusMessage("in the alarm"))
            look(lambda: bool(told("begins")))
            since_s = time.monotonic()
            look(lambda: time.monotonic() - since_s > 2 * SILENT_S)
            assert not sending.done()
            own.node.rabbitmqctl(*end)
            look(lambda: sending.done() and bool(told("ends")))
            sending.result()
    assert blamed == set()
    assert [line for line in bridge.lines if "queue.silent" in line] == []
    (begun,), (ended,) = told("begins"), told("ends")
    assert "disk" in begun
    assert "disk" in ended


def test_an_alarm_that_no_send_has_met(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """RabbitMQ tells only who publishes; readiness asks the management API as well."""
    own = start_broker()
    assert own.node is not None
    begin, end = ALARMS["disk"]
    bridge = start_bridge(on=own, vhost="/")
    own.node.rabbitmqctl(*begin)
    eventually(lambda: ready(bridge)[0] == 503, within_s=120)
    assert any("alarm" in reason and "disk" in reason for reason in ready(bridge)[1])
    own.node.rabbitmqctl(*end)
    eventually(lambda: ready(bridge) == (200, []), within_s=120)
