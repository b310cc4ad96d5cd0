"""What a peek costs when an entity is peeked again and again: the same each time, and little."""

from __future__ import annotations

from collections import Counter

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.streams import standing_reader
from bridge.broker.streams.standing_reader import UNACKED
from bridge.engine.api import DeadLetter, Defer
from bridge.engine.browse import unrecorded_settlements
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.counting_calls import Calls
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

MESSAGES = 40
PAGE = 5
ROUND = 2 * (UNACKED + 1)
"""Peeks of one measurement: a new reader of the streams falls into each likewise."""

ROUNDS = 4

ASKED = "broker/connection/calls.py:ask"
BEGUN = "broker/connection/consumers.py:consume_soon"
OPENED = "broker/connection/channel.py:open"

ASKED_MAX = 16
"""Questions of RabbitMQ that a peek asks at most, its share of a new reader included."""

BEGUN_MAX = 4
"""Consumers that a peek starts at most, likewise."""

GROWTH = 1.2
"""The most by which the calls of later peeks are more than those of the first."""

SLACK = 100
"""Calls of other work of the bridge that fall into a peek."""


async def cost(door: Door, calls: Calls) -> Counter[str]:
    """Return the calls of a round of peeks, whose work is the same each time."""
    with calls.of() as found:
        for _ in range(ROUND):
            assert len(await door.namespace.peek(door.path, 1, PAGE)) == PAGE
    return found


async def filled(door: Door) -> None:
    """Have messages that are active, dead and deferred, and a first peek behind it."""
    await door.send(*(f"m-{number}" for number in range(MESSAGES)))
    for number, each in enumerate(await door.client().receive(4)):
        assert each.lock_token is not None
        settlement = DeadLetter() if number % 2 else Defer()
        await door.namespace.settle(door.path, each.lock_token, settlement)

    async def is_shown() -> bool:
        found = await door.namespace.peek(door.path, 1, MESSAGES)
        return [each.is_deferred for each in found].count(True) == 2 and len(found) == MESSAGES - 2

    await until(is_shown)


@pytest.mark.parametrize("is_counted", [False, True], ids=["at once", "counts compared"])
async def test_the_last_of_many_peeks_costs_no_more_than_the_first(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch, is_counted: bool
) -> None:
    """No channel is opened, few consumers are started, and few questions asked."""
    monkeypatch.setattr(unrecorded_settlements, "LOOK_S", 0.0 if is_counted else 3_600.0)
    monkeypatch.setattr(standing_reader, "LIFE_S", 3_600.0)
    queue = model.Queue(name="orders", lock_duration_ms=300_000)
    async with open_door(endpoint, broker.management_url, queue) as door:
        await filled(door)
        calls = Calls()
        rounds = [await cost(door, calls) for _ in range(ROUNDS)]
    print([(each.total(), each[ASKED], each[BEGUN], each[OPENED]) for each in rounds])
    first, last = rounds[0].total() / ROUND, min(each.total() for each in rounds[1:]) / ROUND
    assert last <= GROWTH * first + SLACK
    for each in rounds[1:]:
        assert each[OPENED] <= 1, "a channel that has become old is replaced"
        assert each[BEGUN] <= BEGUN_MAX * ROUND
        assert each[ASKED] <= ASKED_MAX * ROUND
