"""What a killed process has written still arrives."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from bridge.broker.channel import Channel
from bridge.broker.connection import Connection
from bridge.broker.endpoint import Endpoint
from bridge.broker.keeper import Keeper
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.integration.inbox import QUORUM, WITHIN_S, eventually

COUNT = 500
MESSAGES = 3_000
PLAIN = Properties(delivery_mode=2).encode()


async def idle(channel: Channel, queue: str, least: int) -> int:
    """Wait until the queue has no consumer and that many messages; return how many it has then."""
    ready = -1

    async def is_idle() -> bool:
        nonlocal ready
        before = ready
        state = await channel.declare_queue(queue, passive=True)
        ready = state.messages
        return state.consumers == 0 and ready >= least and ready == before

    await eventually(is_idle)
    return ready


async def test_what_is_sure_stays_settled_after_a_kill(
    broker: Broker, vhost: str, confirming: Channel
) -> None:
    """Acks that the process was sure of are applied, though deliveries were left unread."""
    await confirming.declare_queue("q", arguments=QUORUM)
    for _ in range(MESSAGES):
        confirming.publish("", "q", PLAIN, bytes(1024))
    await confirming.publish_confirmed("", "q", PLAIN, b"last")
    arguments = (broker.url_of(vhost), "q", str(COUNT))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.settler", *arguments
    )
    assert await asyncio.wait_for(process.wait(), WITHIN_S) == -signal.SIGKILL

    left = MESSAGES + 1 - COUNT
    assert await idle(confirming, "q", left) == left


async def test_a_connection_that_is_closed_is_not_kept(endpoint: Endpoint) -> None:
    """Closing ends the connection at once, whoever holds a duplicate of its socket."""
    keeper = Keeper()
    keeper.start()
    connection = await Connection.open(endpoint, name="kept")
    connection.keep(keeper)

    async def is_kept() -> bool:
        return connection.is_kept

    await eventually(is_kept)
    await asyncio.wait_for(connection.close(), 2)
    await keeper.close()
    assert not keeper.is_alive


async def test_without_its_keeper_a_connection_is_not_kept(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that was killed keeps nothing, and that is known."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    keeper = Keeper()
    keeper.start()
    connection = await Connection.open(endpoint, name="kept")
    connection.keep(keeper)

    async def is_kept() -> bool:
        return connection.is_kept

    async def is_not_kept() -> bool:
        return not connection.is_kept

    await eventually(is_kept)
    started[0].kill()
    await eventually(is_not_kept)
    channel = await connection.channel()
    await channel.barrier()
    await connection.close()
    await keeper.close()
