"""What a source forwards is in the target in the source's order, whichever bridge is killed."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from functools import partial
from itertools import pairwise
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from bridge.topology import names
from bridge.wire import envelope
from bridge.wire.envelope import Item, Operation
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.sidecar import BARE
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.kills

SOURCE, TARGET = "source", "the/end"
KILLS = 4
BURST = 20
QUIET_S = 5.0
WITHIN_S = 200.0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A queue that forwards to another one."""
    queues = [
        {"Name": TARGET, "Properties": {"LockDuration": "PT5S"}},
        {"Name": SOURCE, "Properties": {"ForwardTo": TARGET}},
    ]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": []}
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return path


class Load:
    """Sends numbered messages to the source, one after another, until it is left."""

    def __init__(self, url: str) -> None:
        self.sent = 0
        self._url = url
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def has_sent(self, count: int) -> bool:
        """Whether so many messages are sent."""
        return self.sent >= count

    def _run(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            channel = connection.channel()
            while not self._is_over.is_set():
                for _ in range(BURST):
                    self._send(channel)
                connection.sleep(0.02)

    def _send(self, channel: BlockingChannel) -> None:
        item = Item(BARE, b"%d" % self.sent)
        raw = envelope.encode(Operation.SEND, uuid.uuid4().bytes, [item])
        properties = pika.BasicProperties(headers={"x-busbridge-kind": "envelope"}, delivery_mode=2)
        channel.basic_publish(names.front(SOURCE), "", raw, properties)
        self.sent += 1


def received(url: str, count: int) -> list[tuple[int, int, int]]:
    """Return number and text of what is in the target: all that was sent, and what is left."""
    found: list[tuple[int, int, int]] = []
    texts: set[int] = set()
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=500)
        end_s = time.monotonic() + WITHIN_S
        for method, properties, body in channel.consume(TARGET, inactivity_timeout=QUIET_S):
            if method is None and len(texts) >= count:
                break
            assert time.monotonic() < end_s, f"{len(texts)} of {count} came"
            if method is not None:
                table = properties.headers
                numbers = table["x-opt-sequence-number"], table["x-opt-enqueue-sequence-number"]
                found.append((*numbers, int(body)))
                texts.add(int(body))
                channel.basic_ack(method.delivery_tag)
        channel.cancel()
    return found


def ordered(found: list[tuple[int, int, int]], sent: int) -> None:
    """Check that everything is there, each under one number, in the order of the source's."""
    first: dict[int, tuple[int, int]] = {}
    for number, source_number, text in found:
        known = first.setdefault(number, (source_number, text))
        assert known == (source_number, text), f"{number} is of two messages"
    texts = [text for _, text in first.values()]
    assert sorted(set(texts)) == list(range(sent)), "lost"
    assert len(texts) == len(set(texts)), "twice"
    ours = [(number, *first[number]) for number in first]
    inversions = [(a, b) for a, b in pairwise(ours) if b[1] < a[1]]
    assert not inversions, f"of {sent}: {inversions[:20]}, {len(inversions)} in all"


def besieged(bridges: list[Bridge]) -> None:
    """Kill the bridges in turn under load, and begin them again; check the target then."""
    chance = random.Random(KILLS)
    with Load(bridges[0].amqp_url) as load:
        for turn in range(KILLS):
            bridge = bridges[turn % len(bridges)]
            enough = load.sent + chance.randint(200, 1_000)
            eventually(partial(load.has_sent, enough), within_s=120)
            bridge.kill()
            bridge.start()
    ordered(received(bridges[0].amqp_url, load.sent), load.sent)


def test_what_is_forwarded_keeps_its_order_over_kills(
    start_bridge: StartBridge, config: Path
) -> None:
    """The same bridge goes on."""
    besieged([start_bridge(config=config)])


def test_what_is_forwarded_keeps_its_order_when_another_bridge_goes_on(
    start_bridge: StartBridge, config: Path
) -> None:
    """The other one takes over while RabbitMQ may still hold the dead one's messages for it."""
    besieged([start_bridge(config=config), start_bridge()])
