"""Work that goes on over lost connections, and the errors that end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.broker.errors import AccessRefused, LoginRefused, NotFound, ResourceLocked
from bridge.broker.reconnect import is_permanent, keep_connected
from tests.fixtures.broker import Broker

WAIT_S = 120.0


@pytest.mark.long
async def test_work_starts_again_after_a_kill(start_broker: Callable[[], Broker]) -> None:
    """It is cancelled when the connection is lost, and started anew when RabbitMQ is back."""
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    started: asyncio.Queue[Connection] = asyncio.Queue()
    lost: list[BaseException] = []
    cancelled = 0

    async def work(connection: Connection) -> None:
        nonlocal cancelled
        await started.put(connection)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    keeper = keep_connected(
        Supervisor(), parse_url(broker.url), work, kind="test", name="test", on_lost=lost.append
    )
    async with asyncio.timeout(WAIT_S):
        first = await started.get()
        await asyncio.to_thread(broker.node.kill)
        await asyncio.to_thread(broker.node.start)
        second = await started.get()
    assert first is not second
    assert (cancelled, bool(lost)) == (1, True)
    keeper.task.cancel()
    await asyncio.gather(keeper.task, return_exceptions=True)


async def test_work_that_says_it_is_over_ends(endpoint: Endpoint) -> None:
    """The connection is closed then."""
    connections = []

    async def work(connection: Connection) -> None:
        connections.append(connection)

    async with asyncio.timeout(WAIT_S):
        await keep_connected(
            Supervisor(), endpoint, work, kind="test", name="test", may_end=lambda: True
        ).task

    assert [each.is_closed for each in connections] == [True]


@pytest.mark.parametrize(
    "error",
    [
        ResourceLocked(405, "held by another"),
        NotFound(404, "no queue"),
        AccessRefused(403, "no right to configure"),
        RuntimeError("a fault"),
        None,
    ],
    ids=lambda error: type(error).__name__,
)
async def test_work_that_ends_starts_again(endpoint: Endpoint, error: Exception | None) -> None:
    """On a connection of its own each time, whatever the error was, and when it has returned."""
    connections = []
    supervisor = Supervisor()

    async def work(connection: Connection) -> None:
        connections.append(connection)
        if len(connections) < 3 and error is not None:
            raise error

    async with asyncio.timeout(WAIT_S):
        await keep_connected(
            supervisor,
            endpoint,
            work,
            kind="test",
            name="test",
            may_end=lambda: len(connections) == 3,
        ).task

    assert len(set(map(id, connections))) == 3
    assert all(each.is_closed for each in connections)
    assert supervisor.failures["test"] == 2


async def test_a_refused_login_ends_the_process_where_its_owner_says_so(
    endpoint: Endpoint,
) -> None:
    """A wrong password at the start is told at once."""
    supervisor = Supervisor()

    async def work(connection: Connection) -> None:
        raise AssertionError("never connected")

    wrong = replace(endpoint, password="wrong")
    keep_connected(supervisor, wrong, work, kind="test", name="test", is_final=is_permanent)
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(LoginRefused):
            await supervisor.until(asyncio.Event().wait())


async def test_cancelling_it_cancels_the_work(endpoint: Endpoint) -> None:
    """The work ends, the connection is closed, and no task is left."""
    running = asyncio.Event()
    connections = []

    async def work(connection: Connection) -> None:
        connections.append(connection)
        running.set()
        await asyncio.Event().wait()

    keeper = keep_connected(Supervisor(), endpoint, work, kind="test", name="test").task
    async with asyncio.timeout(WAIT_S):
        await running.wait()
    keeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeper

    assert connections[0].is_closed
    assert asyncio.all_tasks() == {asyncio.current_task()}
