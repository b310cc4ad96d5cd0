"""What a bridge does for one entity, a second or a poll costs the same beside 10 and beside 300."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.cli.garbage import in_steps
from bridge.engine.administration import reconciler
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.counting_calls import TURN_MS, UNIT_MS, Calls, Turns, unit_ms
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

pytestmark = pytest.mark.long

SIZES = (10, 100, 300)
IDLE_S = 1.5

GROWTH = 1.25
"""The most that a cost may grow from 10 to 300 entities; a retry of a request is in it."""

POLICIES = "bridge/engine/administration/policies.py"
"""The policies of a namespace are one computation over its settings; they have tests of their own
(test_shared_policies.py)."""

SLACK = 600
"""Calls that fall into a measurement by chance: of the leader that a new queue gets, of timers."""


@dataclass
class Costs:
    """Calls of each kind of work, beside one number of entities."""

    of: dict[str, Counter[str]] = field(default_factory=dict)

    async def note(self, calls: Calls, what: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do some work three times; keep the smallest count."""
        found = []
        for _ in range(3):
            with calls.of() as counted:
                await work()
            found.append(counted)
        self.of[what] = min(found, key=Counter.total)


async def grown_to(door: Door, size: int) -> None:
    """Have a bridge make, and lead, more queues until there are this many."""
    queues = tuple(model.Queue(name=f"orders-{number:03}") for number in range(size))
    await door.namespace.apply(model.Namespace(queues=queues))
    await until(lambda: len(door.sidecar.leading) >= size)


async def costs_beside(door: Door, calls: Calls, size: int) -> Costs:
    """What is done for one entity, and for none, beside those that are there."""
    administration, check = door.namespace.administration, door.namespace.reconciler.check
    costs, numbers = Costs(), iter(range(100))
    queue = model.Queue(name=f"changed-{size}")

    async def create() -> None:
        await administration.create(model.Queue(name=f"new-{size}-{next(numbers)}"))

    async def update() -> None:
        count = 11 + next(numbers)
        await administration.update(replace(queue, max_delivery_count=count))

    async def delete() -> None:
        await administration.delete(f"new-{size}-{next(gone)}")

    async def idle() -> None:
        await asyncio.sleep(IDLE_S)

    await costs.note(calls, "create", create)
    gone = iter(range(3))
    await administration.create(queue)
    await costs.note(calls, "update", update)
    await costs.note(calls, "delete", delete)
    await check()
    await check()
    await costs.note(calls, "poll", check)
    await costs.note(calls, "idle", idle)
    return costs


async def test_work_for_one_entity_costs_the_same_beside_ten_and_beside_three_hundred(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Create, update, delete, a poll without changes, idle seconds; and no turn stands long."""
    monkeypatch.setattr(reconciler, "POLL_S", 3_600.0)
    found: dict[int, Costs] = {}
    turns, calls = Turns(), Calls(POLICIES)
    calls.lend(asyncio.get_running_loop())
    async with open_door(endpoint, broker.management_url) as door:
        for size in SIZES:
            with in_steps(), turns.watched():
                await grown_to(door, size)
                await door.namespace.reconciler.check()
            found[size] = await costs_beside(door, calls, size)
    few, many = found[SIZES[0]].of, found[SIZES[-1]].of
    grown = {
        what: (few[what].total(), each.total(), (each - few[what]).most_common(8))
        for what, each in many.items()
        if each.total() > GROWTH * few[what].total() + SLACK
    }
    print(
        {
            size: {what: each.total() for what, each in costs.of.items()}
            for size, costs in found.items()
        }
    )
    print(turns.longest_ms, turns.what, unit_ms())
    assert grown == {}, grown
    assert turns.longest_ms < TURN_MS * max(unit_ms() / UNIT_MS, 1), turns.what
