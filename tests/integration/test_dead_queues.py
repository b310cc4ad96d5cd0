"""One dead queue of RabbitMQ stops nobody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import (
    Complete,
    DeadLetter,
    Defer,
    Received,
    ReceiveMode,
)
from bridge.model import entity as model
from bridge.model.errors import ServerBusy, ServiceBusError
from bridge.model.name import EntityPath
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.dead import dead_queue, silent_stream, start_queue, stop_queue
from tests.fixtures.waiting import until
from tests.integration.door import Client, Door, open_door, outgoing

pytestmark = pytest.mark.kills

NAME = "orders"
OTHERS = tuple(f"other-{number}" for number in range(20))
"""So many that some share a connection with each queue of the dead entity's."""

QUEUES = (NAME, *OTHERS)


@pytest.fixture(scope="module")
def broker(own_broker: Broker) -> Broker:
    """No other test meets what these do to a RabbitMQ."""
    return own_broker


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with an entity whose queues die, and others."""
    queues = (
        model.Queue(name=name, lock_duration_ms=60_000, max_delivery_count=2) for name in QUEUES
    )
    async with open_door(endpoint, broker.management_url, *queues) as opened:
        await until(lambda: all(opened.sidecar.meters[name].is_active for name in QUEUES))
        yield opened


class Others:
    """The healthy entities: one message of each is locked, others go through.

    Attributes:
        passed: how many went through.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        self._clients: dict[str, Client] = {}
        self._locked: dict[str, Received] = {}
        self.passed = 0

    async def lock(self) -> None:
        """Lock a message of each."""
        for name in OTHERS:
            path = EntityPath(name)
            await self._door.namespace.send(path, [outgoing("locked")])
            client = self._clients.setdefault(name, self._door.client(path=path))
            (self._locked[name],) = await client.receive()

    async def work(self) -> None:
        """Have a message go through each; none may come with a failed delivery."""

        async def one(name: str) -> None:
            path, body = EntityPath(name), f"through-{self.passed}"
            await self._door.namespace.send(path, [outgoing(body)])
            (received,) = await self._clients[name].receive()
            assert (received.record.body.decode(), received.delivery_count) == (body, 0)
            await self._door.complete(received, path=path)
            self.passed += 1

        await asyncio.gather(*map(one, OTHERS))

    async def work_for(self, seconds: float) -> None:
        """Go on so for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self.work()

    async def complete(self) -> None:
        """Complete what is locked: none of the locks has ended."""
        for name, received in self._locked.items():
            await self._door.complete(received, path=EntityPath(name))
        self._locked.clear()


def is_named(door: Door, name: str) -> Callable[[], bool]:
    """Whether the bridge tells that a queue, or an entity, gives no answer."""

    def is_so() -> bool:
        silent = [*door.namespace.state.silent, *door.sidecar.silent]
        return any(each.name == name for each in silent)

    return is_so


async def receive_all(client: Client, count: int) -> set[str]:
    """Receive and complete so many messages; return their bodies."""
    return {each.record.body.decode() for each in await client.receive(count)}


async def attempt(work: Callable[[], Awaitable[object]]) -> bool:
    """Do something that a dead queue may refuse; whether it was done within 3 s.

    What was not goes on: no client's disconnect cancels what a bridge does for it.
    """
    task = asyncio.ensure_future(work())
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        async with asyncio.timeout(3):
            await asyncio.shield(task)
    except (ServiceBusError, TimeoutError):
        return False
    return True


async def test_a_dead_active_queue_takes_no_lock_of_the_others_again_and_again(
    door: Door, broker: Broker, vhost: str
) -> None:
    """The first failure costs its connection; later ones nobody. Then it goes on by itself."""
    others = Others(door)
    await door.send("a", "b")
    await asyncio.sleep(0.2)
    async with dead_queue(broker, vhost, NAME):
        client = door.client()
        client.receiver.add_credit(2)
        await until(is_named(door, NAME))
        await others.lock()
        before = failures(door, NAME)
        await others.work_for(2)
        await until(lambda: failures(door, NAME) >= before + 1)
        await others.work()
        await others.complete()
    assert {each.record.body for each in await client.wait(2)} == {b"a", b"b"}
    await until(lambda: not is_named(door, NAME)())


async def test_the_first_failure_of_a_queue_costs_the_locks_of_one_connection_only(
    door: Door, broker: Broker, vhost: str
) -> None:
    """Fifteen sixteenths of the locks are not touched."""
    paths = [EntityPath(name) for name in OTHERS]
    clients = [door.client(path=path) for path in paths]
    for path in paths:
        await door.namespace.send(path, [outgoing("locked")])
    locked = [(await client.receive())[0] for client in clients]
    async with dead_queue(broker, vhost, NAME):
        door.client().receiver.add_credit(1)
        await until(is_named(door, NAME))
    kept = 0
    for path, received in zip(paths, locked, strict=True):
        assert received.lock_token is not None
        try:
            await door.namespace.settle(path, received.lock_token, Complete())
        except ServiceBusError:
            continue
        kept += 1
    assert kept >= len(OTHERS) - 5


async def test_a_dead_dead_letter_queue_stops_nobody_else(
    door: Door, broker: Broker, vhost: str
) -> None:
    """Receiving from it and dead-lettering into it wait; the others go on; nothing is lost."""
    others = Others(door)
    await door.send("a")
    client = door.client()
    (received,) = await client.receive()
    queue = f"{NAME}/$deadletterqueue"
    dead = door.client(path=door.dead_letters)
    token = received.lock_token
    assert token is not None

    async def dead_letter() -> None:
        await door.namespace.settle(door.path, token, DeadLetter(reason="mine"))

    async with dead_queue(broker, vhost, queue):
        dead.receiver.add_credit(1)
        await until(is_named(door, queue))
        await others.lock()
        assert not await attempt(dead_letter)
        await others.work_for(2)
        await others.complete()
    await until(lambda: attempt(dead_letter))
    (found,) = await dead.wait(1)
    assert found.record.body == b"a"


async def test_a_dead_queue_of_deferred_messages_stops_nobody_else(
    door: Door, broker: Broker, vhost: str
) -> None:
    """A receiver that asks for deferred messages is told to try again; then they are there."""
    others = Others(door)
    await door.send("a")
    client = door.client()
    (received,) = await client.receive()
    assert received.lock_token is not None
    await door.namespace.settle(door.path, received.lock_token, Defer())
    number = received.sequence_number
    queue = f"{NAME}/$deferred"

    async def ask() -> list[Received]:
        return await door.namespace.receive_deferred(door.path, [number], ReceiveMode.PEEK_LOCK)

    async with dead_queue(broker, vhost, queue):
        asking = asyncio.ensure_future(attempt(ask))
        await until(is_named(door, queue))
        await others.lock()
        await others.work_for(2)
        await others.complete()
        await asking
    (deferred,) = await ask()
    assert deferred.record.body == b"a"


async def test_publishing_to_a_dead_inbox_holds_up_nobody_else(
    door: Door, broker: Broker, vhost: str
) -> None:
    """Unconfirmed messages are not answered; sends to other entities take as long as before."""
    others = Others(door)
    await others.lock()
    await door.send("first")
    async with dead_queue(broker, vhost, f"{NAME}/$inbox"):
        sends = [asyncio.ensure_future(attempt(partial(door.send, "x"))) for _ in range(2_000)]
        await others.work_for(2)
        await until(lambda: any(NAME in each.name for each in door.namespace.state.silent))
        await others.work()
        await others.complete()
        assert not any(await asyncio.gather(*sends))
    await until(lambda: attempt(partial(door.send, "last")))
    client = door.client()
    client.receiver.add_credit(2_100)
    await until(lambda: b"last" in {each.record.body for each in client.received})


@pytest.mark.parametrize("queue", ["$inbox", "$journal"])
async def test_a_sequencer_that_finds_a_dead_queue_stops_no_other(
    endpoint: Endpoint, broker: Broker, vhost: str, door: Door, queue: str
) -> None:
    """It begins on a bridge that starts meanwhile, whose others all work."""
    await door.namespace.close()
    await door.sidecar.stop()
    await stop_queue(broker, vhost, f"{NAME}/{queue}")
    try:
        async with open_door(endpoint, broker.management_url) as second:
            await until(lambda: all(second.sidecar.meters[name].is_active for name in OTHERS))
            others = Others(second)
            await others.lock()
            await others.work_for(3)
            terms = {name: second.sidecar.meters[name].terms for name in OTHERS}
            await others.work_for(3)
            await others.complete()
            assert {name: second.sidecar.meters[name].terms for name in OTHERS} == terms
            # As a warning: a balancer that saw a reason would take all the others away.
            await until(lambda: is_named(second, NAME)() and not second.sidecar.reasons)
            await start_queue(broker, vhost, f"{NAME}/{queue}")
            await until(lambda: second.sidecar.meters[NAME].is_active, within_s=120)
            await until(lambda: attempt(partial(second.send, "a")))
            (received,) = await second.client().receive()
            assert received.record.body == b"a"
    finally:
        await start_queue(broker, vhost, f"{NAME}/{queue}")


async def test_a_dead_bucket_stops_no_other_sequencer(
    door: Door, broker: Broker, vhost: str
) -> None:
    """The messages that wait in it come when it answers again."""
    others = Others(door)
    due_ms = int(time.time() * 1000) + 40_000
    await door.namespace.schedule(door.path, [outgoing("later", scheduled_ms=due_ms)])
    await until(lambda: asyncio.to_thread(is_in_bucket, broker, vhost))
    async with dead_queue(broker, vhost, f"{NAME}/$scheduled/*"):
        await others.lock()
        await until(is_named(door, NAME), within_s=120)
        terms = {name: door.sidecar.meters[name].terms for name in OTHERS}
        await others.work_for(3)
        await others.complete()
        assert {name: door.sidecar.meters[name].terms for name in OTHERS} == terms
    client = door.client()
    client.receiver.add_credit(1)
    await until(lambda: client.received, within_s=120)
    assert client.received[0].record.body == b"later"


def is_in_bucket(broker: Broker, vhost: str) -> bool:
    """Whether a bucket of the entity that dies has a message: a schedule is answered before."""
    assert broker.node is not None
    counted = ("-q", "list_queues", "-p", vhost, "--no-table-headers", "name", "messages")
    rows = (each.split("\t") for each in broker.node.rabbitmqctl(*counted).splitlines())
    prefix = names.bucket_prefix(NAME)
    return any(name.startswith(prefix) and int(messages) for name, messages in rows)


def failures(door: Door, name: str) -> int:
    """How often a queue has ended a connection."""
    found = {each.name: each.failures for each in door.namespace.state.silent}
    return found.get(name, 0)


async def test_a_peek_does_not_take_a_silent_journal_for_an_empty_one(
    door: Door, broker: Broker, vhost: str
) -> None:
    """It says that RabbitMQ is busy, again and again, until the journal speaks."""

    async def peek() -> list[Received]:
        return await door.namespace.peek(door.path, 0, 10)

    await door.send("a")
    await until(peek)
    async with silent_stream(broker, vhost, names.journal(NAME)):
        for _ in range(2):
            with pytest.raises(ServerBusy):
                await peek()
    (found,) = await peek()
    assert found.record.body == b"a"
