"""`busbridge sidecar`: applications that are on RabbitMQ themselves need no gateway."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.client.management import ResourceNotFoundError, ServiceBusAdministrationClient
from bridge.testing.process import Bridge
from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import client_of, numbers, receive, send, take
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import ENDS_S

ENTITIES: dict[str, dict[str, Any]] = {
    f"{name}-{lane}": {"LockDuration": "PT30S"} for name in ("plain", "aside") for lane in LANES[1:]
}
ENTITIES |= {f"sessions-{lane}": {"RequiresSession": True} for lane in LANES[1:]}
ENTITIES |= {"shared": {}}


@pytest.fixture(scope="module")
def sidecar(broker: Broker, module_vhost: str, config: Path) -> Iterator[Bridge]:
    """The only bridge of a virtual host. What is for the gateway in its environment is not read."""
    only = bridge_of(broker, module_vhost, config=config, command="sidecar")
    only.start(BUSBRIDGE_TLS_PORT="https", BUSBRIDGE_AUTH="/nowhere/rules.json")
    yield only
    only.kill()


@pytest.fixture(params=LANES[1:])
def lane(request: pytest.FixtureRequest, sidecar: Bridge) -> Iterator[Lane]:
    """The library, on pika and on aio-pika."""
    with lane_of(request.param, sidecar) as made:
        yield made


def await_body(receiver: Any, body: str) -> None:
    """Take messages until this one comes: after a kill others may come a second time."""
    while [str(each) for each in take(receiver)] != [body]:
        pass


def test_messages_are_numbered_shown_and_timed(lane: Lane) -> None:
    """A peek shows a sent message with its number; a scheduled one comes at its time."""
    queue = f"plain-{lane.name}"
    lane.send(queue, "one", "two")
    due = datetime.now(UTC) + timedelta(seconds=2)
    with lane.client.get_queue_sender(queue) as sender:
        sender.schedule_messages(lane.message("later"), due)
    with lane.client.get_queue_receiver(queue) as receiver:
        shown = receiver.peek_messages(max_message_count=5)
        was_waiting = datetime.now(UTC) < due
        assert [str(each) for each in shown] == ["one", "two", "later"]
        assert [str(each) for each in take(receiver, 2)] == ["one", "two"]
        (last,) = take(receiver)
        assert datetime.now(UTC) >= due
        assert str(last) == "later"
        assert numbers([last]) > numbers(shown)[2:] or not was_waiting


def test_what_is_deferred_is_kept(lane: Lane) -> None:
    """It is received by its number."""
    queue = f"aside-{lane.name}"
    lane.send(queue, "for later")
    with lane.client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver)
        receiver.defer_message(message)
        (again,) = receiver.receive_deferred_messages(message.sequence_number)
        assert str(again) == "for later"
        receiver.complete_message(again)


def test_sessions_are_kept(lane: Lane) -> None:
    """The next one that has messages is accepted; its state outlives the receiver."""
    queue = f"sessions-{lane.name}"
    lane.send(queue, "first", session_id="s")
    with lane.client.get_queue_receiver(queue, session_id="s") as receiver:
        take(receiver)
        receiver.session.set_state(b"half-way")
    with lane.client.get_queue_receiver(queue, session_id="s") as receiver:
        assert receiver.session.get_state() == b"half-way"


def test_entities_are_administered(sidecar: Bridge) -> None:
    """Created, used and deleted by the library's administration client."""
    with (
        ServiceBusAdministrationClient(sidecar.amqp_url) as administration,
        lane_of("pika", sidecar) as lane,
    ):
        administration.create_queue("made", max_delivery_count=7)
        assert administration.get_queue("made").max_delivery_count == 7
        lane.send("made", "x")
        with lane.client.get_queue_receiver("made") as receiver:
            take(receiver)
        administration.delete_queue("made")
        with pytest.raises(ResourceNotFoundError):
            administration.get_queue("made")


def test_its_port_has_health_and_metrics_only(sidecar: Bridge) -> None:
    """No AMQP 1.0, no administration over HTTP, no metrics of a gateway."""
    assert json.loads(sidecar.get("/health/ready"))["status"] == "ready"
    metrics = sidecar.get("/metrics")
    assert "busbridge_locks" in metrics
    assert "busbridge_connections" not in metrics
    with pytest.raises(urllib.error.HTTPError) as caught:
        sidecar.get("/$Resources/Queues?api-version=2021-05")
    with caught.value as refusal:
        assert refusal.code == 404
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", sidecar.port), timeout=120)
    (ready,) = [line for line in sidecar.lines if line.startswith("ready")]
    assert "Endpoint=" not in ready


def test_either_goes_on_without_the_other(
    sidecar: Bridge, broker: Broker, module_vhost: str
) -> None:
    """Beside a bridge with a gateway: the SDK's messages reach the library, whoever is killed."""
    served = bridge_of(broker, module_vhost)
    try:
        served.start()
        with lane_of("pika", sidecar) as lane:
            with client_of(served) as client:
                send(client, "shared", "from the SDK")
                with lane.client.get_queue_receiver("shared") as receiver:
                    assert [str(each) for each in take(receiver)] == ["from the SDK"]
                sidecar.kill()
                lane.send("shared", "numbered by the other")
                with client.get_queue_receiver("shared") as receiver:
                    await_body(receiver, "numbered by the other")
            sidecar.start()
            served.kill()
            lane.send("shared", "numbered here")
            with lane.client.get_queue_receiver("shared") as receiver:
                await_body(receiver, "numbered here")
    finally:
        served.kill()


def test_it_ends_when_it_is_told_to(sidecar: Bridge) -> None:
    """SIGTERM: code 0, within five seconds, while a message is locked; and it starts again."""
    if not sidecar.is_running:
        sidecar.start()
    with lane_of("pika", sidecar) as lane:
        lane.send("shared", "locked")
        with lane.client.get_queue_receiver("shared") as receiver:
            (message,) = receive(receiver)
            began = time.monotonic()
            assert sidecar.stop() == 0
            assert time.monotonic() - began < ENDS_S
            receiver.complete_message(message)
    sidecar.start()
