"""What a target may forget, as the looks at a source say: never a message that can still come."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.relay.running.outlet import SourceNumbers
from bridge.relay.running.status import RouteStatus
from bridge.relay.running.watch import PAGE, Watch
from bridge.remote.errors import RemoteError
from bridge.remote.management import RemoteManagement
from bridge.remote.message import STATES, RemoteMessage
from bridge.wire.amqp10.scalars import Int, Long
from tests.fixtures.examples import examples


class PeekedQueue:
    """A namespace's answers to peeks: messages by number, each with its state."""

    def __init__(self, **messages: str) -> None:
        self.states: dict[int, Any] = {int(number[1:]): state for number, state in messages.items()}
        self.peeks = 0

    async def peek(self, from_number: int, count: int) -> list[RemoteMessage]:
        """Return a page."""
        self.peeks += 1
        found = [each for each in sorted(self.states) if each >= from_number]
        return [
            RemoteMessage.of(
                annotations={
                    "x-opt-sequence-number": Long(each),
                    "x-opt-message-state": Int(STATES.index(self.states[each])),
                }
            )
            for each in found[:count]
        ]


class Source:
    """A source that is looked at, and the time."""

    def __init__(self, *queues: PeekedQueue) -> None:
        self.now_ms = 0
        self.numbers = SourceNumbers(0, lambda: (), lambda: self.now_ms)
        managements = cast("tuple[RemoteManagement, ...]", queues)
        self.watch = Watch(managements, self.numbers, RouteStatus("r", "s", "t"))

    def look(self) -> None:
        """Look once, as `Watch.run` does until it waits."""

        async def once() -> None:
            task = asyncio.ensure_future(self.watch.run())
            for _ in range(200):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(once())
        self.now_ms += 1

    @property
    def told(self) -> int:
        """The lowest number that would be told now."""
        return self.numbers.told([1])[0]


def test_a_message_that_is_dead_lettered_behind_younger_ones_is_seen() -> None:
    """Else its copy would be told as long over, confirmed, and completed at the source: lost."""
    dead, entity = PeekedQueue(n500="active", n501="active"), PeekedQueue(n5="active")
    source = Source(dead, entity)
    source.look()
    assert source.told == 5
    dead.states[5] = entity.states.pop(5)
    source.look()
    assert source.told == 5


def test_what_an_entity_has_deferred_is_looked_at_once() -> None:
    """Whole pages of it: the next look begins behind them, and sees an older message again."""
    entity = PeekedQueue(**{f"n{each}": "deferred" for each in range(1, 4 * PAGE + 1)})
    entity.states |= dict.fromkeys(range(4 * PAGE + 2, 4 * PAGE + 20), "active")
    source = Source(entity)
    source.look()
    assert entity.peeks == 5
    entity.states[4 * PAGE + 1] = "active"
    source.look()
    assert entity.peeks == 6
    assert source.told == 4 * PAGE + 1


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["new", "die", "defer", "done"]), st.integers(0, 9))))
def test_nothing_below_what_is_told_can_come(steps: list[tuple[str, int]]) -> None:
    """Of a dead-letter queue, whatever is dead-lettered, deferred and completed in any order."""
    dead, entity = PeekedQueue(), PeekedQueue()
    source, last = Source(dead, entity), 0
    for step, which in steps:
        living, letters = sorted(entity.states), sorted(dead.states)
        if step == "new":
            last += 1
            entity.states[last] = "active"
        elif step == "die" and living:
            number = living[which % len(living)]
            del entity.states[number]
            dead.states[number] = "active"
        elif step == "defer" and living:
            entity.states[living[which % len(living)]] = "deferred"
        elif step == "done" and letters:
            del dead.states[letters[which % len(letters)]]
        source.look()
        assert source.told <= min([*entity.states, *dead.states], default=last + 1)


@pytest.mark.parametrize("is_there", [True, False])
def test_what_cannot_be_looked_at_says_nothing(*, is_there: bool) -> None:
    """The next look is another one."""
    queue = PeekedQueue(n7="active")
    source = Source(queue)
    if not is_there:

        async def fails(from_number: int, count: int) -> list[RemoteMessage]:
            raise RemoteError("amqp:not-found", "none")

        queue.peek = fails  # type: ignore[method-assign]
    source.look()
    assert source.told == (7 if is_there else 0)
