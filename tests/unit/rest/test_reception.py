"""One message for one request, in any order of messages, waits, answers and departures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.engine.api import Received, ReceiveMode
from bridge.model.entity import Queue
from bridge.model.errors import EntityNotFound
from bridge.model.name import EntityPath
from bridge.rest.reception import Reception
from tests.bench.memory_namespace import MemoryNamespace
from tests.bench.memory_queue import MemoryQueue, MemoryReceiver, Stored
from tests.integration.door import outgoing

Q = EntityPath("q")
MODES = (ReceiveMode.PEEK_LOCK, ReceiveMode.RECEIVE_AND_DELETE)


class KeepingReceiver(MemoryReceiver):
    """A receiver that keeps what is not taken, and returns it at its end, as RabbitMQ's do."""

    def __init__(
        self, queue: MemoryQueue, mode: ReceiveMode, deliver: Callable[[Received], None]
    ) -> None:
        super().__init__(queue, mode, self._deliver)
        self._pass_on = deliver
        self._untaken: list[Received] = []

    def _deliver(self, received: Received) -> None:
        self._pass_on(received)
        if received.lock_token is None:
            self._untaken.append(received)

    def taken(self) -> None:
        """Settle the oldest."""
        self._untaken.pop(0)

    async def close(self) -> None:
        """Return what was not taken."""
        for received in self._untaken:
            number, count = received.sequence_number, received.delivery_count
            back = Stored(number, received.record, received.enqueued_ms, None, count)
            self.queue._return(back, counts=False)
        self._untaken.clear()
        await super().close()


class KeepingNamespace(MemoryNamespace):
    """Queues with such receivers."""

    def open_receiver(
        self, path: EntityPath, *, mode: ReceiveMode, deliver: Callable[[Received], None]
    ) -> MemoryReceiver:
        """Return a receiver without credit."""
        return KeepingReceiver(self.queue(path), mode, deliver)


@dataclass
class Client:
    """A client, and what becomes of its request."""

    task: asyncio.Task[None] | None = None
    leaving: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    got: int = 0


async def ask(space: MemoryNamespace, client: Client, mode: ReceiveMode, timeout_s: float) -> None:
    """Make a request as `Messages` does; the answer is written when the client reads."""
    reception = Reception(space, Q, mode, lambda: None)
    try:
        found = await reception.message(timeout_s, client.leaving)
        if found is not None:
            await client.reads.wait()
            if client.leaving.done():
                return
            reception.written()
            client.got = found[0].sequence_number
    finally:
        await reception.close()


STEPS = st.lists(
    st.one_of(
        st.just(("send",)),
        st.tuples(st.just("ask"), st.sampled_from(MODES), st.sampled_from([0.0, 0.001, 60.0])),
        st.tuples(st.sampled_from(["leave", "read", "cancel"]), st.integers(0, 5)),
        st.tuples(st.just("turns"), st.integers(1, 4)),
        st.just(("wait",)),
    ),
    max_size=30,
)


async def run(steps: list[tuple]) -> None:
    """Take the steps, end all requests, and count."""
    space = KeepingNamespace(Queue(name="q", lock_duration_ms=300_000))
    queue = space.queue(Q)
    clients: list[Client] = []
    sent = 0
    for step in steps:
        match step:
            case ("send",):
                sent += 1
                await space.send(Q, [outgoing(str(sent))])
            case ("ask", mode, timeout_s):
                client = Client()
                client.task = asyncio.create_task(ask(space, client, mode, timeout_s))
                clients.append(client)
            case ("turns", count):
                for _ in range(count):
                    await asyncio.sleep(0)
            case ("wait",):
                await asyncio.sleep(0.002)
            case (what, at) if at < len(clients):
                client = clients[at]
                if what == "read":
                    client.reads.set()
                elif what == "cancel":
                    client.task.cancel()
                elif not client.leaving.done():
                    client.leaving.set_result(None)
                    client.reads.set()
    for client in clients:
        if not client.leaving.done():
            client.leaving.set_result(None)
        client.reads.set()
        with suppress(asyncio.CancelledError):
            await client.task
    await asyncio.sleep(0)

    got = [client.got for client in clients if client.got]
    locked = [stored.number for stored, _ in queue.locked.values()]
    waiting = [stored.number for stored in queue.active]
    assert len(set(got)) == len(got)
    assert set(locked) <= set(got)
    assert sorted(waiting + got) == list(range(1, sent + 1))
    assert not any(stored.delivery_count for stored in queue.active)
    assert not queue.waiting
    space.forget()


@given(STEPS)
def test_each_message_is_with_one_client_or_waits(steps: list[tuple]) -> None:
    """A message that a client has got is locked or deleted; all others are available, uncounted."""
    asyncio.run(run(steps))


async def test_a_message_of_an_entity_that_was_deleted_meanwhile_is_not_taken() -> None:
    """It stays where it was, and the request has the error of a missing entity."""
    space = KeepingNamespace(Queue(name="q", lock_duration_ms=300_000))
    queue = space.queue(Q)
    reception = Reception(space, Q, ReceiveMode.PEEK_LOCK, lambda: None)
    leaving = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(reception.message(60.0, leaving))
    await asyncio.sleep(0)
    for key in list(space._queues):
        del space._queues[key]

    queue.enqueue(outgoing("late").record)

    with pytest.raises(EntityNotFound):
        await waiting
    assert [stored.delivery_count for stored in queue.active] == [0]
    assert not queue.locked
    await reception.close()
