"""What an application does with a bridge is no drift for `busbridge policies check`."""

from __future__ import annotations

import urllib.parse
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from bridge.cli.main import main
from tests.acceptance.sdk import client_of, receive, send, texts
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

ENTITIES: dict[str, dict[str, object]] = {
    "orders": {},
    "sessions": {"RequiresSession": True},
    "once": {"RequiresDuplicateDetection": True},
}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "all"}]}]


def test_an_application_at_work_is_no_drift(
    bridge: Any, broker: Broker, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Peeks, deferrals, schedules, dead letters, session states and topics; then a check."""
    with client_of(bridge) as client:
        send(client, "orders", "deferred", "dead", "left")
        with client.get_queue_receiver("orders") as receiver:
            deferred, dead = receive(receiver, 2)
            receiver.defer_message(deferred)
            receiver.dead_letter_message(dead)
            eventually(
                lambda: texts(receiver.peek_messages(10, sequence_number=1)) == ["deferred", "left"]
            )
        with client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
            assert texts(receiver.peek_messages(10)) == ["dead"]
        later = datetime.now(UTC) + timedelta(hours=1)
        with client.get_queue_sender("orders") as sender:
            sender.schedule_messages(ServiceBusMessage("later"), later)
        send(client, "sessions", ServiceBusMessage("first", session_id="a"))
        with client.get_queue_receiver("sessions", session_id="a") as receiver:
            receiver.session.set_state(b"state")
            assert texts(receiver.peek_messages(1)) == ["first"]
        send(client, "once", ServiceBusMessage("x", message_id="1"))
        with client.get_topic_sender("events") as sender:
            sender.send_messages(ServiceBusMessage("copied"))
        with client.get_subscription_receiver("events", "all") as receiver:
            assert texts(receiver.peek_messages(1)) == ["copied"]
            receiver.defer_message(receive(receiver)[0])

    vhost = urllib.parse.unquote(urllib.parse.urlsplit(bridge.amqp_url).path[1:])
    where = ("--management-url", broker.management_url, "--vhost", vhost)
    code = main(["policies", "check", str(config), "--prune", *where])

    assert (code, capsys.readouterr().out) == (0, "Nothing to change.\n")
