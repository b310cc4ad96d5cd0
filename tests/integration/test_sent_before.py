"""What was sent, and answered, before a purge or a list of sessions counts, numbered or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.clock import now_ms
from bridge.engine.sending import requests
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology import shards
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.session_door import PATH, SessionClient, send

SESSIONS = model.Queue(name="orders", requires_session=True)
PLAIN = EntityPath("plain")
ANSWERED_S = 12.0
"""So soon the next term answers; who is not answered waits longer."""

COMES_S = 0.5
"""So much later the sequencer comes; an answer that does not wait for it is given by then."""


@pytest_asyncio.fixture
async def door(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Door]:
    """A bridge whose sequencer is not there yet, and may take its time."""
    monkeypatch.setattr(requests, "CATCH_UP_S", 20.0)
    url = broker.management_url
    queues = SESSIONS, model.Queue(name="plain")
    async with open_door(endpoint, url, *queues, with_sidecar=False) as opened:
        yield opened


@asynccontextmanager
async def numbering(door: Door, after_s: float) -> AsyncIterator[None]:
    """Have the sequencer come so much later."""

    async def come() -> None:
        await asyncio.sleep(after_s)
        await door.sidecar.run()

    running = asyncio.create_task(come())
    try:
        yield
    finally:
        await door.sidecar.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_purge_deletes_what_was_sent_before(door: Door) -> None:
    """Also what has no number yet."""
    await door.namespace.send(PLAIN, [outgoing("a"), outgoing("b")])
    async with numbering(door, COMES_S):
        assert await door.namespace.delete_messages(PLAIN, 10, now_ms() + 60_000) == 2


async def test_sessions_are_listed_that_were_sent_to_before(door: Door) -> None:
    """In all shards."""
    sessions = [f"session-{number}" for number in range(8)]
    for each in sessions:
        await send(door, each, "1")
    async with numbering(door, COMES_S):
        listed = await door.namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=10)
    assert listed == sessions


async def test_a_purge_of_a_session_deletes_what_was_sent_before(door: Door) -> None:
    """Its lock is held."""
    client = await SessionClient(door).accept("a")
    await send(door, "a", "1", "2", "3")
    async with numbering(door, COMES_S):
        assert await door.namespace.delete_messages(PATH, 10, now_ms() + 60_000, "a") == 3
    await client.close()


def process_of(door: Door, vhost: str, session_id: str) -> str:
    """Erlang for the process of the queue that has a session."""
    entity = door.namespace.directory.receivable(PATH)
    shard = shards.shard_of(entity, session_id)
    return f"whereis('{vhost}_{shards.active_queues(entity)[shard]}')"


async def evaluate(broker: Broker, command: str) -> None:
    """Have RabbitMQ carry out some Erlang."""
    assert broker.node is not None
    await asyncio.to_thread(broker.node.rabbitmqctl, "eval", command)


async def close_sidecars(broker: Broker, vhost: str) -> None:
    """Close their connections, as an operator does."""

    def close() -> bool:
        rows = broker.management("GET", f"/api/vhosts/{vhost}/connections")
        found = [each for each in rows if "sidecar" in each.get("user_provided_name", "")]
        for each in found:
            broker.management("DELETE", f"/api/connections/{quote(each['name'], safe='')}")
        return bool(found)

    await until(lambda: asyncio.to_thread(close))


async def test_a_purge_of_a_session_waits_for_its_queue(
    door: Door, broker: Broker, vhost: str
) -> None:
    """A number is in the journal before its message is in a queue that is slow to confirm."""
    client = await SessionClient(door).accept("a")
    async with numbering(door, 0):
        await send(door, "a", "1")
        assert await door.namespace.delete_messages(PATH, 10, now_ms() + 60_000, "a") == 1
        resumed = "timer:apply_after(1500, sys, resume, [P])"
        command = f"P = {process_of(door, vhost, 'a')}, sys:suspend(P), {resumed}."
        await evaluate(broker, command)
        await send(door, "a", "2", "3")
        assert await door.namespace.delete_messages(PATH, 10, now_ms() + 60_000, "a") == 2
    await client.close()


@pytest.mark.long
async def test_a_purge_of_a_session_outlives_its_sequencers_connection(
    door: Door, broker: Broker, vhost: str
) -> None:
    """The successor publishes what the queue had not confirmed, then tells the purge."""
    client = await SessionClient(door).accept("a")
    async with numbering(door, 0):
        await send(door, "a", "1")
        assert await door.namespace.delete_messages(PATH, 10, now_ms() + 60_000, "a") == 1
        queue = process_of(door, vhost, "a")
        await evaluate(broker, f"sys:suspend({queue}).")
        meters = door.sidecar.meters["orders"]
        arrivals = meters.arrivals
        await send(door, "a", "2", "3")
        until_ms = now_ms() + 60_000
        purging = asyncio.create_task(door.namespace.delete_messages(PATH, 10, until_ms, "a"))
        # The two messages are on their way, and the purge's question is in the journal.
        await until(lambda: meters.arrivals == arrivals + 2 and meters.in_flight == 2)
        await close_sidecars(broker, vhost)
        await until(lambda: not meters.is_active)
        await evaluate(broker, f"sys:resume({queue}).")
        async with asyncio.timeout(ANSWERED_S):
            assert await purging == 2
    await client.close()


async def test_nobody_waits_for_a_sequencer_for_ever(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one the answer is what has its number."""
    monkeypatch.setattr(requests, "CATCH_UP_S", 0.5)
    await door.namespace.send(PLAIN, [outgoing("a")])
    assert await door.namespace.delete_messages(PLAIN, 10, now_ms() + 60_000) == 0
