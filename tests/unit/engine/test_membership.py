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
from bridge.wire.sessions import string
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
        self.on_here: Callable[[bytes, bytes], None] = lambda bridge, queue: None
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
        await self._answers[what](Question(what, table, address="", exchange=""))

    def tell_here(self, bridge: bytes) -> bool:
        """Tell all bridges of this one's queue."""
        for each in self._rabbitmq.queues.values():
            asyncio.get_running_loop().call_soon(each.on_here, bridge, self.instance)
        return True


class Bridge:
    """A bridge, as far as the others are concerned."""

    def __init__(self, rabbitmq: RabbitMQ, name: bytes) -> None:
        self.standbys = Standbys(name)
        self._rabbitmq = rabbitmq
        self._connection = connection = Connection(rabbitmq)
        self.membership = Membership(self.standbys, *cast(Any, (connection,) * 3))

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


async def _is_alone(bridge: Bridge) -> bool:
    return not bridge.standbys.others


async def _knows(bridge: Bridge) -> bool:
    """Whether a bridge knows that the one that ranks before it consumes the inbox."""
    if not bridge.standbys.others:
        return False
    bridge.standbys.decide(0)
    return bridge.standbys.is_known("orders")
