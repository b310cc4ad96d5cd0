"""Work that goes on over lost connections, and errors that end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.broker.errors import BrokerError, LoginRefused, NotFound, ResourceLocked
from bridge.broker.reconnect import keep_connected
from tests.fixtures.broker import Broker


async def test_work_starts_again_after_a_kill(start_broker: Callable[[], Broker]) -> None:
    """It is cancelled when the connection is lost, and started anew when RabbitMQ is back."""
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    started: asyncio.Queue[Connection] = asyncio.Queue()
    states: list[str] = []
    cancelled = 0

    async def work(connection: Connection) -> None:
        nonlocal cancelled
        await started.put(connection)
        try:
            if len(states) < 2:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    def on_state(connection: Connection | None, error: BrokerError | None) -> None:
        state = "up" if connection is not None else "down"
        if states[-1:] != [state]:
            states.append(state)

    keeper = asyncio.create_task(
        keep_connected(parse_url(broker.url), work, name="test", on_state=on_state)
    )
    await asyncio.wait_for(started.get(), 30)
    await asyncio.to_thread(broker.node.kill)
    await asyncio.to_thread(broker.node.start)
    await asyncio.wait_for(keeper, 30)

    assert states == ["up", "down", "up"]
    assert cancelled == 1


async def test_work_that_ends_ends_it(endpoint: Endpoint) -> None:
    """The connection is closed then."""
    connections = []

    async def work(connection: Connection) -> None:
        connections.append(connection)

    await keep_connected(endpoint, work, name="test")

    assert [each.is_closed for each in connections] == [True]


async def test_a_retryable_error_starts_the_work_again(endpoint: Endpoint) -> None:
    """On a connection of its own each time."""
    connections = []

    async def work(connection: Connection) -> None:
        connections.append(connection)
        if len(connections) < 3:
            raise ResourceLocked(405, "held by another")

    await keep_connected(endpoint, work, name="test")

    assert len(set(map(id, connections))) == 3
    assert all(each.is_closed for each in connections)


@pytest.mark.parametrize("error", [NotFound(404, "no queue"), RuntimeError("a fault")])
async def test_other_errors_end_it(endpoint: Endpoint, error: Exception) -> None:
    """What no retry helps against reaches the caller."""

    async def work(connection: Connection) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        await keep_connected(endpoint, work, name="test")


async def test_a_refused_login_ends_it(endpoint: Endpoint) -> None:
    """A wrong password at the start is told at once."""

    async def work(connection: Connection) -> None:
        raise AssertionError("never connected")

    wrong = replace(endpoint, password="wrong")
    with pytest.raises(LoginRefused):
        await asyncio.wait_for(keep_connected(wrong, work, name="test"), 10)


async def test_cancelling_it_cancels_the_work(endpoint: Endpoint) -> None:
    """The work ends, the connection is closed, and no task is left."""
    running = asyncio.Event()
    connections = []

    async def work(connection: Connection) -> None:
        connections.append(connection)
        running.set()
        await asyncio.Event().wait()

    keeper = asyncio.create_task(keep_connected(endpoint, work, name="test"))
    await asyncio.wait_for(running.wait(), 10)
    keeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeper

    assert connections[0].is_closed
    assert asyncio.all_tasks() == {asyncio.current_task()}
