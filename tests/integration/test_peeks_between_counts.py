"""Peeks while messages go back to their queue between the two questions for a count.

RabbitMQ is asked first for what is ready, then bridges for what they hold: such a message is in
neither answer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Abandon, DeadLetter, Defer, ReceiveMode
from bridge.engine.browse import unrecorded_settlements
from bridge.engine.counting import Counting
from bridge.engine.deferral import queue
from bridge.engine.deferral.entities import Deferral
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Client, Door, open_door

COUNT = 5
ORDERS = model.Queue(name="orders", lock_duration_ms=300_000)


class Between:
    """Does something once, between the next two questions for a count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work: Callable[[], Awaitable[None]] | None = None
        self.is_done = False
        asked = Counting.held_by_known
        between = self

        async def held_by_known(counting: Counting, paths: Sequence[str]) -> list[int]:
            work, between.work = between.work, None
            if work is not None:
                await work()
                between.is_done = True
            return await asked(counting, paths)

        monkeypatch.setattr(Counting, "held_by_known", held_by_known)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Each peek compares counts."""
    monkeypatch.setattr(unrecorded_settlements, "LOOK_S", 0.0)
    return Between(monkeypatch)


async def shown(door: Door, path: EntityPath) -> list[int]:
    """Return the numbers that a peek shows."""
    return [each.sequence_number for each in await door.namespace.peek(path, 0, 250)]


async def settle_all(door: Door, client: Client, how: DeadLetter | Defer) -> None:
    """Receive the messages, and settle them in the same way."""
    for each in await client.receive(COUNT):
        assert each.lock_token is not None
        await door.namespace.settle(door.path, each.lock_token, how)
    await client.receiver.close()


async def test_deferred_messages_that_a_bridge_gives_back_at_its_end_are_shown(
    endpoint: Endpoint, broker: Broker, between: Between
) -> None:
    """No count says that none is deferred: the queue's next owner says what is there."""
    async with (
        AsyncExitStack() as holding,
        open_door(endpoint, broker.management_url, ORDERS) as door,
    ):
        holder = await holding.enter_async_context(open_door(endpoint, broker.management_url))
        await holder.namespace.directory.read()
        await holder.send(*(str(each) for each in range(COUNT)))
        await settle_all(holder, holder.client(), Defer())
        assert len(await shown(holder, holder.path)) == COUNT

        async def are_held() -> bool:
            held = await door.namespace.counting.held_anywhere(["orders"])
            return held == [0, 0, COUNT]

        await until(are_held)
        between.work = holding.aclose
        assert len(await shown(door, door.path)) == COUNT
        assert between.is_done


async def test_deferred_messages_are_shown_whose_owner_lets_them_go_unasked(
    endpoint: Endpoint, broker: Broker, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen by one peek is in the next one, too."""
    monkeypatch.setattr(queue, "IDLE_S", 3.0)
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*(str(each) for each in range(COUNT)))
        await settle_all(door, door.client(), Defer())
        assert len(await shown(door, door.path)) == COUNT

        async def is_held_by_none() -> bool:
            return await door.namespace.counting.held_anywhere(["orders"]) == [0, 0, 0]

        async def let_go() -> None:
            await until(is_held_by_none)

        between.work = let_go
        assert len(await shown(door, door.path)) == COUNT
        assert between.is_done


@pytest.mark.parametrize("has_peeked", [False, True], ids=["a first peek", "a later peek"])
async def test_dead_letters_that_their_receiver_abandons_are_shown(
    endpoint: Endpoint, broker: Broker, between: Between, has_peeked: bool
) -> None:
    """One count that has none of them is not believed."""
    async with (
        open_door(endpoint, broker.management_url, ORDERS) as door,
        open_door(endpoint, broker.management_url) as holder,
    ):
        await holder.namespace.directory.read()
        await door.send(*(str(each) for each in range(COUNT)))
        await settle_all(door, door.client(), DeadLetter(reason="bad"))
        client = holder.client(path=holder.dead_letters)
        received = await client.receive(COUNT)
        if has_peeked:
            assert len(await shown(door, door.dead_letters)) == COUNT

        async def abandon() -> None:
            for each in received:
                assert each.lock_token is not None
                await holder.namespace.settle(holder.dead_letters, each.lock_token, Abandon())
            await client.receiver.close()

        between.work = abandon
        assert len(await shown(door, door.dead_letters)) == COUNT
        assert between.is_done


async def test_the_owner_is_asked_once_where_all_deferred_messages_are_gone(
    endpoint: Endpoint, broker: Broker, between: Between, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue exists, and is empty: peek by peek that costs no more than where it has some."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*(str(each) for each in range(COUNT)))
        await settle_all(door, door.client(), Defer())
        numbers = list(range(1, COUNT + 1))
        await door.namespace.receive_deferred(door.path, numbers, ReceiveMode.RECEIVE_AND_DELETE)
    with caplog.at_level(logging.INFO):
        async with open_door(endpoint, broker.management_url) as door:
            await door.namespace.directory.read()
            for _ in range(5):
                assert await shown(door, door.path) == []
    asked = [each for each in caplog.messages if each.startswith("browse.listed")]
    assert asked == ["browse.listed entity=orders deferred=0"]


async def test_peeks_ask_no_owner_where_nothing_was_ever_deferred(
    endpoint: Endpoint, broker: Broker, between: Between
) -> None:
    """Asking one would make the queue."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send("a")
        await until(lambda: shown(door, door.path))
        for _ in range(3):
            await shown(door, door.path)
        queues = await door.management.queues_below("orders/")
        assert names.deferred_queue("orders") not in queues


async def test_a_message_that_the_stream_calls_deferred_before_its_queue_has_it_is_shown(
    endpoint: Endpoint, broker: Broker, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two publishes defer a message: what one list of the owner lacks, a second must lack, too."""
    asked = Deferral.listed
    lists: list[int] = []

    async def listed(
        deferral: Deferral, entity: model.ReceiveEntity
    ) -> tuple[Sequence[int], Sequence[int]] | None:
        found = await asked(deferral, entity)
        assert found is not None
        own, dead = found
        lists.append(len(own))
        return (own[1:], dead) if len(lists) == 1 else found

    monkeypatch.setattr(Deferral, "listed", listed)
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*(str(each) for each in range(COUNT)))
        await settle_all(door, door.client(), Defer())
        assert len(await shown(door, door.path)) == COUNT
        assert lists == [COUNT, COUNT]
