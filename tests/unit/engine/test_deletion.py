"""When a batch delete has deleted all that there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID, uuid4

from bridge.broker.connection.declarations import QueueState
from bridge.engine.api import Complete, Disposition, OnSettled, Received
from bridge.engine.receiving.deletion import QUIET_S, Deletion
from bridge.model.name import EntityPath
from bridge.wire.basic import Properties
from bridge.wire.record import Record


class EmptyQueue:
    """RabbitMQ's answers for a queue without ready messages, and the channel they come on.

    Attributes:
        asked: set when it was asked.
        connected_s: when its connection was opened.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.declarations = self
        self.connected_s = float("-inf")

    async def declare_queue(self, queue: str, *, passive: bool) -> QueueState:
        """Count no message."""
        self.asked.set()
        return QueueState(queue, 0, 1)

    async def channel(self) -> Any:
        """Return a channel."""

        @contextmanager
        def opened() -> Iterator[EmptyQueue]:
            yield self

        return opened()


class Asking:
    """The receiver of the delete: what was asked for comes when the test says so."""

    def __init__(self, deliver: Callable[[Received], None]) -> None:
        self._deliver = deliver

    def add_credit(self, count: int) -> None:
        """Ask."""

    def come(self, number: int) -> None:
        """A message comes."""
        record = Record(Properties(), b"")
        self._deliver(
            Received(
                record=record,
                sequence_number=number,
                enqueued_ms=0,
                delivery_count=0,
                lock_token=uuid4(),
                locked_until_ms=1,
            )
        )

    async def close(self) -> None:
        """End."""


async def test_messages_that_wait_to_go_back_are_deleted_too() -> None:
    """Another receiver has given them back; until a window has closed RabbitMQ counts none."""
    queue, waiting = EmptyQueue(), 3
    receivers: list[Asking] = []

    def opened(deliver: Callable[[Received], None]) -> Any:
        receivers.append(Asking(deliver))
        return receivers[-1]

    def settle(token: UUID, disposition: Disposition, done: OnSettled) -> None:
        assert disposition == Complete()
        done(None)

    deletion = Deletion(
        EntityPath("orders"),
        1,
        portion=100,
        waiting=lambda: waiting,
        connections=cast(Any, queue),
        settle=settle,
        release=cast(Any, None),
    )
    deleting = asyncio.ensure_future(deletion.run(opened, 100))
    done, _ = await asyncio.wait([deleting], timeout=4 * QUIET_S)
    assert not done
    waiting = 0
    for number in (1, 2, 3):
        receivers[0].come(number)
    assert await deleting == 3
    assert queue.asked.is_set()
