"""What a transaction sends to others is there once, whatever step its forwarder is killed at."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pika
import pika.exceptions
import pytest

from bridge.broker.failpoint import STEPS
from bridge.message.transfers import transfer_of
from bridge.model import entity as model
from bridge.topology import names
from bridge.wire import commits
from bridge.wire.commits import CommitContent
from tests.crash.siege import Siege
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker
from tests.integration.door import outgoing

pytestmark = pytest.mark.kills

DEADLINE_S = 120.0
REACH_S = 60.0
DEAD = names.transfer_dead_letter_queue("orders")
TEXTS = [f"{number:02}" for number in range(20)]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A queue that transactions pin, and a target."""
    queues = [{"Name": "orders"}, {"Name": "one"}]
    path = tmp_path / "Config.json"
    namespace = {"Name": "sbemulatorns", "Queues": queues}
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return path


class Client:
    """A native client."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self.seen: dict[str, dict[bytes, set[int]]] = {"one": {}, DEAD: {}}

    def commit(self, *texts: str) -> None:
        """Put a commit into the inbox of `orders`: each text for `one` and for no entity."""
        identity = uuid.uuid4().bytes
        targets = [(path, text) for text in texts for path in ("one", "nowhere")]
        transfers = [
            transfer_of(model.Queue(name=path), outgoing(text), identity, place, b"pinned")
            for place, (path, text) in enumerate(targets)
        ]
        self._channel.basic_publish(
            names.front("orders"),
            "",
            commits.encode(identity, CommitContent(transfers=transfers)),
            pika.BasicProperties(headers={"x-busbridge-kind": "envelope"}, delivery_mode=2),
            mandatory=True,
        )

    def take_until(self, last: bytes) -> None:
        """Take what is in both queues until a text has come to both of them."""
        end_s = time.monotonic() + DEADLINE_S
        while not all(last in seen for seen in self.seen.values()):
            assert time.monotonic() < end_s, {
                queue: list(seen) for queue, seen in self.seen.items()
            }
            for queue, seen in self.seen.items():
                self._take(queue, seen)

    def _take(self, queue: str, seen: dict[bytes, set[int]]) -> None:
        try:
            method, properties, body = self._channel.basic_get(queue)
        except pika.exceptions.ChannelClosedByBroker:  # it is not made yet
            self._channel = self._connection.channel()
            method = None
        if method is None:
            time.sleep(0.02)
            return
        number = int(properties.headers["x-opt-sequence-number"])
        seen.setdefault(body, set()).add(number)
        self._channel.basic_ack(method.delivery_tag)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 7])
@pytest.mark.parametrize("site", ["engine.transfer", "engine.transfer_refused"])
def test_each_transfer_is_in_one_place_under_one_number(
    start_bridge: StartBridge,
    broker: Broker,
    vhost: str,
    config: Path,
    site: str,
    step: str,
    nth: int,
) -> None:
    """At its target, or among the transfer dead letters, after a kill at any step of each."""
    siege = Siege(start_bridge(config=config))
    siege.bridge.kill()
    client = Client(broker.url_of(vhost))
    client.commit(*TEXTS)
    assert siege.start_armed(f"{site}.{step}:{nth}", within_s=REACH_S)
    siege.bridge.start()
    client.commit("last")
    client.take_until(b"last")
    client.close()
    wanted = [*(text.encode() for text in TEXTS), b"last"]
    for seen in client.seen.values():
        assert list(seen) == wanted
        assert all(len(numbers) == 1 for numbers in seen.values())
