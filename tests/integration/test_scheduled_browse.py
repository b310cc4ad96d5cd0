"""Peeks beside scheduled messages: their numbers were never in the queue, and say nothing of it."""

from __future__ import annotations

from collections import Counter

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.browse import unrecorded_settlements
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.counting_calls import Calls
from tests.integration.door import open_door, outgoing

HOUR_MS = 3_600_000
READ_BACK = "engine/browse/unrecorded_settlements.py:_read_back"
LEFT_OUT = "engine/browse/unrecorded_settlements.py:_leave_out_scheduled"
BACKLOG = 3_000
PEEKS = 5

SLACK = 100
"""Calls of other work of the bridge that fall into a peek."""


@pytest.mark.parametrize("page", [2, 5_000])
async def test_the_journal_is_not_searched_for_what_is_scheduled(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """At the first peek, and after more were scheduled; they are asked for by pages."""
    monkeypatch.setattr(unrecorded_settlements, "LOOK_S", 0.0)
    monkeypatch.setattr(unrecorded_settlements, "WAITING_PAGE", page)
    queue = model.Queue(name="orders", lock_duration_ms=300_000)
    async with open_door(endpoint, broker.management_url, queue) as door:

        async def add() -> None:
            later = [outgoing("later", scheduled_ms=now_ms() + HOUR_MS) for _ in range(5)]
            await door.namespace.schedule(door.path, later)
            await door.send("now", "now")

        calls = Calls()
        with calls.of() as found:
            for count in (7, 14):
                await add()
                shown = await door.namespace.peek(door.path, 1, 100)
                assert [each.is_scheduled for each in shown].count(True) == 5 * count // 7
                assert [each.sequence_number for each in shown] == list(range(1, count + 1))
        assert found[READ_BACK] == 0


async def test_what_was_scheduled_before_the_last_peek_costs_nothing(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peek of a busy queue asks for the numbers behind the last one that it was told."""
    monkeypatch.setattr(unrecorded_settlements, "LOOK_S", 0.0)
    queue = model.Queue(name="orders", lock_duration_ms=300_000)
    async with open_door(endpoint, broker.management_url, queue) as door:
        calls = Calls()

        async def schedule(count: int) -> None:
            later = [outgoing("later", scheduled_ms=now_ms() + HOUR_MS) for _ in range(count)]
            await door.namespace.schedule(door.path, later)

        async def cost() -> Counter[str]:
            await schedule(1)
            with calls.of() as found:
                assert len(await door.namespace.peek(door.path, 1, 1)) == 1
            return found

        await door.send("now")
        await cost()
        few = [await cost() for _ in range(PEEKS)]
        await schedule(BACKLOG)
        await cost()
        many = [await cost() for _ in range(PEEKS)]
        assert [each[LEFT_OUT] > 0 for each in (*few, *many)] == [True] * 2 * PEEKS
        assert [each[READ_BACK] for each in many] == [0] * PEEKS
        least = min(each.total() for each in few)
        assert min(each.total() for each in many) <= least + SLACK
