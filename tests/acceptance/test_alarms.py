"""RabbitMQ's alarms, memory and disk: sends are refused, what empties a queue goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from tests.acceptance.sdk import client_of, receive, send, take
from tests.acceptance.test_serve import ready
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
            """What RabbitMQ reads before it has raised its alarm is still stored."""
            try:
                sender.send_messages(ServiceBusMessage("too much"))
            except ServiceBusServerBusyError:
                return True
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
        eventually(lambda: ready(bridge) == (200, []), within_s=60)
        send(client, "orders", "after")
        while str(take(receiver)[0]) != "after":
            pass


def test_an_alarm_that_no_send_has_met(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """RabbitMQ tells only who publishes; readiness asks the management API as well."""
    own = start_broker()
    assert own.node is not None
    begin, end = ALARMS["disk"]
    bridge = start_bridge(on=own, vhost="/")
    own.node.rabbitmqctl(*begin)
    eventually(lambda: ready(bridge)[0] == 503, within_s=60)
    assert any("alarm" in reason and "disk" in reason for reason in ready(bridge)[1])
    own.node.rabbitmqctl(*end)
    eventually(lambda: ready(bridge) == (200, []), within_s=60)
