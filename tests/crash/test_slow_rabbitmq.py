"""Schedules, forwarding and sessions through takeovers, while RabbitMQ is slow."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pika
import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusReceiveMode
from azure.servicebus.exceptions import OperationTimeoutError

from bridge.testing.process import Bridge
from bridge.topology import names
from bridge.wire import envelope, headers
from bridge.wire.basic import Properties, Table
from bridge.wire.basic import text as text_field
from bridge.wire.envelope import Item, Operation
from tests.fixtures.broker import Broker
from tests.fixtures.relay import Relay

pytestmark = pytest.mark.kills

SOURCE, TARGET, SESSIONS = "source", "the/end", "sessions"
DELAYS_S = (0.1, 0.5, 1.0)
BURSTS = 6
WITHIN_S = 240.0
QUIET_S = 5.0


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A queue that forwards to another one, and one with sessions."""
    queues = [
        {"Name": TARGET, "Properties": {}},
        {"Name": SOURCE, "Properties": {"ForwardTo": TARGET}},
        {"Name": SESSIONS, "Properties": {"RequiresSession": True}},
    ]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": []}
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return path


class Sender:
    """Sends to RabbitMQ itself, which is not slow; each text once."""

    def __init__(self, url: str) -> None:
        self.due_ms: dict[str, int] = {}
        self.sessions: dict[str, list[str]] = {}
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()

    def burst(self, mark: str) -> None:
        """Send what is for now, for soon and for later, and to three sessions."""
        for index in range(10):
            self._send(SOURCE, f"{mark} now {index}")
            self._send(SOURCE, f"{mark} soon {index}", due_ms=now_ms() + 500 + 300 * index)
            self._send(SOURCE, f"{mark} later {index}", due_ms=now_ms() + 4_000 + 900 * index)
            self._send(SESSIONS, f"{mark} in session {index}", session_id=f"session {index % 3}")
        self._connection.sleep(0.5)

    def _send(
        self, entity: str, text: str, *, due_ms: int | None = None, session_id: str | None = None
    ) -> None:
        table: Table = {} if session_id is None else {headers.SESSION_ID: text_field(session_id)}
        properties = Properties(headers=table, delivery_mode=2).encode()
        items = [Item(properties, text.encode(), None, due_ms)]
        raw = envelope.encode(Operation.SEND, uuid.uuid4().bytes, items)
        marked = pika.BasicProperties(headers={"x-busbridge-kind": "envelope"}, delivery_mode=2)
        self._channel.basic_publish(names.front(entity), "", raw, marked, mandatory=True)
        if session_id is None:
            self.due_ms[text] = due_ms or 0
        else:
            self.sessions.setdefault(session_id, []).append(text)

    def forwarded(self) -> list[tuple[int, str, int]]:
        """Return number, text and enqueued time of all that comes in the target."""
        found: dict[int, tuple[int, str, int]] = {}
        self._channel.basic_qos(prefetch_count=500)
        end_s = time.monotonic() + WITHIN_S
        for method, properties, body in self._channel.consume(TARGET, inactivity_timeout=QUIET_S):
            assert time.monotonic() < end_s, f"{len(found)} of {len(self.due_ms)} came"
            if method is None:
                if len(found) >= len(self.due_ms):
                    break
                continue
            number = properties.headers["x-opt-sequence-number"]
            one = number, body.decode(), properties.headers["x-opt-enqueued-time"]
            assert found.setdefault(number, one)[:2] == one[:2], f"{number} names two messages"
            self._channel.basic_ack(method.delivery_tag)
        self._channel.cancel()
        self._connection.close()
        return list(found.values())


def received(client: ServiceBusClient, count: int) -> dict[str, list[str]]:
    """Return what is in the sessions."""
    found: dict[str, list[str]] = {}
    end_s = time.monotonic() + WITHIN_S
    while sum(map(len, found.values())) < count:
        assert time.monotonic() < end_s, f"{sum(map(len, found.values()))} of {count} came"
        try:
            with client.get_queue_receiver(
                SESSIONS,
                session_id=NEXT_AVAILABLE_SESSION,
                max_wait_time=5,
                receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
            ) as receiver:
                texts = found.setdefault(receiver.session.session_id, [])
                texts += [str(each) for each in receiver]
        except OperationTimeoutError:
            continue
    return found


def test_all_is_there_once_after_takeovers_with_a_slow_rabbitmq(
    broker: Broker, vhost: str, config: Path, request: pytest.FixtureRequest
) -> None:
    """Nothing is lost, early or doubled; sessions keep their order."""
    with Relay(broker.url_of(vhost)) as relay:
        urls = ("--rabbitmq-url", relay.url, "--management-url", broker.management_url)
        bridge = Bridge((*urls, "--config", str(config)), amqp_url=relay.url)
        request.addfinalizer(bridge.kill)
        bridge.start()
        sender = Sender(broker.url_of(vhost))
        for delay_s in DELAYS_S:
            relay.delay_s = delay_s
            for burst in range(BURSTS):
                sender.burst(f"{delay_s} s, {burst}:")
                if burst % 3 == 2:
                    relay.cut()
        relay.delay_s = 0.0
        bridge.kill()
        bridge.start()
        with ServiceBusClient.from_connection_string(bridge.connection_string) as client:
            sessions = received(client, sum(map(len, sender.sessions.values())))
        forwarded = sender.forwarded()

    assert sessions == sender.sessions
    texts = [text for _, text, _ in forwarded]
    assert sorted(texts) == sorted(sender.due_ms), "lost or doubled"
    early = [text for _, text, enqueued_ms in forwarded if enqueued_ms < sender.due_ms[text]]
    assert not early
