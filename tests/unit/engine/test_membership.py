"""Bridges know what the others consume, over losses of their connections, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from bridge.background.tasks import Tasks
from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine import membership
from bridge.engine.membership import Membership
from bridge.engine.peers import Answers, Question
from bridge.machine.inbox.standbys import Standbys
from bridge.topology import names
from bridge.topology.shards import in_order_of_choice
from bridge.wire.basic import Table
from bridge.wire.sessions import PING, string
from tests.fixtures.waiting import until


class RabbitMQ:
    """The queues of bridges, and the exchange that leads to all of them."""

    def __init__(self) -> None:
        self.queues: dict[bytes, Connection] = {}


class Connection:
    """What a bridge's membership uses of its process: peers, notifications and locks.

    Attributes:
        instance: the name of the bridge's queue.
    """

    def __init__(self, rabbitmq: RabbitMQ) -> None:
        self.instance = b""
        self._under_way = Tasks()
        self._answers: dict[str, Answers] = {}
        self.on_here: Callable[[bytes, bytes, str], None] = lambda bridge, queue, features: None
        self._rabbitmq = rabbitmq

    def post(
        self, queue: bytes, question: Table, done: Callable[[BrokerError | None], None]
    ) -> None:
        """Deliver a question, or say that there is no such queue."""
        asked = self._rabbitmq.queues.get(queue)
        loop = asyncio.get_running_loop()
        if asked is not None:
            self._under_way.start(asked.hear(question))
        loop.call_soon(done, None if asked is not None else Unroutable(312, "NO_ROUTE"))

    def answer(self, what: str, answer: Answers) -> None:
        """Have questions of this name answered."""
        self._answers[what] = answer

    async def hear(self, table: Table) -> None:
        """Take another bridge's question."""
        what = string(table, "do")
        if what == PING:
            return  # sessions answer it
        await self._answers[what](Question(what, table, address="", exchange=""))

    def tell_here(self, bridge: bytes, features: str) -> bool:
        """Tell all bridges of this one's queue."""
        for each in self._rabbitmq.queues.values():
            asyncio.get_running_loop().call_soon(each.on_here, bridge, self.instance, features)
        return True

    async def others(self) -> list[bytes]:
        """List the queues of other bridges."""
        return [each for each in self._rabbitmq.queues if each != self.instance]


class Bridge:
    """A bridge, as far as the others are concerned."""

    def __init__(self, rabbitmq: RabbitMQ, name: bytes) -> None:
        self.standbys = Standbys(name)
        self._rabbitmq = rabbitmq
        self._connection = connection = Connection(rabbitmq)
        part = cast(Any, connection)
        self.membership = Membership(self.standbys, part, part, part, connection.others)

    def connect(self, queue: bytes) -> None:
        """Listen to a queue of a new name."""
        self._connection.instance = queue
        self._rabbitmq.queues[queue] = self._connection
        self.membership.listened()

    def disconnect(self) -> None:
        """Lose the connection that the queue belongs to, and no other one."""
        del self._rabbitmq.queues[self._connection.instance]


async def test_a_bridge_whose_queue_was_gone_tells_again_what_it_consumes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its terms go on over other connections; others have forgotten all that it had told."""
    monkeypatch.setattr(membership, "RETURN_S", 0.0)
    rabbitmq = RabbitMQ()
    first, second = in_order_of_choice((b"one", b"two"), names.inbox("orders"))
    ahead, behind = Bridge(rabbitmq, first), Bridge(rabbitmq, second)
    for bridge in (ahead, behind):
        bridge.standbys.add("orders", 0)
        bridge.connect(bridge.standbys.own)
    ahead.standbys.begin("orders")
    ahead.standbys.decide(0)
    running = [asyncio.create_task(each.membership.run()) for each in (ahead, behind)]
    await until(lambda: _knows(behind))

    ahead.disconnect()
    await until(lambda: _is_alone(behind))
    ahead.connect(b"another queue")
    await until(lambda: _knows(behind))
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


class EarlierBridge(Connection):
    """A bridge of an earlier version, which takes every question and knows no feature."""

    async def hear(self, table: Table) -> None:
        """Take another bridge's question."""

    def connect(self, queue: bytes, *, tells: bool) -> None:
        """Listen to a queue; the oldest versions tell nobody."""
        self.instance = queue
        if tells:
            self.tell_here(b"earlier", "")
        self._rabbitmq.queues[queue] = self


@pytest.mark.parametrize("tells", [True, False])
async def test_a_feature_is_known_when_no_bridge_of_an_earlier_version_runs(
    monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    """Each may be the next leader; the oldest ones are found though they say nothing."""
    monkeypatch.setattr(membership, "RETURN_S", 0.0)
    monkeypatch.setattr(membership, "HERE_S", 0.3)
    rabbitmq = RabbitMQ()
    first, second = Bridge(rabbitmq, b"one"), Bridge(rabbitmq, b"two")
    both = [first.membership, second.membership]
    first.connect(b"queue one")
    running = [asyncio.create_task(first.membership.run())]
    feature = next(iter(membership.FEATURES))
    await until(lambda: first.membership.knows(feature))
    assert first.membership.knows("another"), "no other bridge is there"
    second.connect(b"queue two")
    running.append(asyncio.create_task(second.membership.run()))
    await until(lambda: all(each.standbys.others for each in (first, second)))
    for _ in range(20):
        assert first.membership.knows(feature), "a bridge that begins says at once what it knows"
        await asyncio.sleep(0.05)
    assert not first.membership.knows("another")

    earlier = EarlierBridge(rabbitmq)
    earlier.connect(b"queue three", tells=tells)
    await until(lambda: not any(each.knows(feature) for each in both))
    del rabbitmq.queues[b"queue three"]
    await until(lambda: all(each.knows(feature) for each in both))
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_bridge_that_begins_beside_a_silent_one_knows_no_feature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not before the first list, not while RabbitMQ gives none, and not after it."""
    monkeypatch.setattr(membership, "LISTED_AGAIN_S", 0.05)
    rabbitmq = RabbitMQ()
    bridge, earlier = Bridge(rabbitmq, b"one"), EarlierBridge(rabbitmq)
    earlier.connect(b"queue three", tells=False)
    answers = asyncio.Event()
    asked: list[None] = []

    async def running() -> list[bytes]:
        asked.append(None)
        if not answers.is_set():
            raise BrokerError(text="no list")
        return [b"queue three"]

    bridge.membership._running = running
    feature = next(iter(membership.FEATURES))
    known: list[bool] = [bridge.membership.knows(feature)]
    bridge.connect(b"queue one")
    telling = asyncio.create_task(bridge.membership.run())
    await until(lambda: len(asked) > 3)
    known.append(bridge.membership.knows(feature))
    answers.set()
    await until(lambda: bridge.membership.is_listed)
    for _ in range(20):
        known.append(bridge.membership.knows(feature))
        await asyncio.sleep(0.02)
    assert not any(known)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


async def test_a_bridge_that_begins_beside_others_knows_what_they_tell() -> None:
    """As soon as each has told: long before the next list."""
    rabbitmq = RabbitMQ()
    first, second = Bridge(rabbitmq, b"one"), Bridge(rabbitmq, b"two")
    feature = next(iter(membership.FEATURES))
    first.connect(b"queue one")
    running = [asyncio.create_task(first.membership.run())]
    await until(lambda: first.membership.knows(feature))
    second.connect(b"queue two")
    running.append(asyncio.create_task(second.membership.run()))
    assert not second.membership.knows(feature)
    async with asyncio.timeout(membership.HERE_S / 2):
        await until(lambda: second.membership.knows(feature))
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_the_list_of_bridges_may_have_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RabbitMQ keeps the queue of a dead node's bridge, which takes nothing."""
    monkeypatch.setattr(membership, "HERE_S", 0.1)
    rabbitmq = RabbitMQ()
    bridge = Bridge(rabbitmq, b"one")
    listed: list[None] = []

    async def running() -> list[bytes]:
        listed.append(None)
        return [b"gone"]

    bridge.membership._running = running
    bridge.connect(b"queue one")
    telling = asyncio.create_task(bridge.membership.run())
    await until(lambda: len(listed) > 3)
    assert bridge.membership.knows(next(iter(membership.FEATURES)))
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


async def _is_alone(bridge: Bridge) -> bool:
    return not bridge.standbys.others


async def _knows(bridge: Bridge) -> bool:
    """Whether a bridge knows that the one that ranks before it consumes the inbox."""
    if not bridge.standbys.others:
        return False
    bridge.standbys.decide(0)
    return bridge.standbys.is_known("orders")
