"""Messages that are meant are taken by their numbers: each once, or it is said which were not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.commands.taking_sources import NumberedSource
from bridge.operations.selection import MessageSelection
from bridge.relay.running.judgement import number_of
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteConnectionLost, RemoteLockLost
from bridge.remote.management import LockedByNumber, RemoteManagement
from bridge.remote.message import RemoteMessage
from bridge.remote.outcomes import Complete, Release, RemoteOutcome
from bridge.wire.amqp10.message_properties import MessageProperties
from tests.fixtures.examples import examples

MEANT, OTHER = "meant", "other"


class ScriptedEntity(RemoteManagement):
    """A bridge's entity, as far as messages are looked at, locked and settled there by number.

    Attributes:
        bodies: what is there, by number.
        elsewhere: numbers that somebody else has locked.
        behind: numbers that stand too far behind.
        answers: what was locked is told when this is set.
        completed: numbers in the order of their completions.
        calls: how often something was locked.
    """

    def __init__(self, bodies: dict[int, str]) -> None:
        self.bodies = bodies
        self.elsewhere: set[int] = set()
        self.behind: set[int] = set()
        self.completed: list[int] = []
        self.calls = 0
        self.is_lost = False
        self.answers = asyncio.Event()
        self.answers.set()
        self._locks: dict[UUID, int] = {}

    async def peek(
        self, from_number: int, count: int, session_id: str | None = None
    ) -> list[RemoteMessage]:
        """Show a short page."""
        numbers = sorted(each for each in self.bodies if each >= from_number)
        return [self._message(each) for each in numbers[:3]]

    def _message(self, number: int) -> RemoteMessage:
        return RemoteMessage.of(
            properties=MessageProperties(subject=self.bodies[number]),
            annotations={"x-opt-sequence-number": number},
        )

    async def lock_messages(self, numbers: Sequence[int]) -> LockedByNumber:
        """Lock what can be."""
        self.calls += 1
        there = [each for each in numbers if each in self.bodies]
        locked = self.elsewhere | {*self._locks.values()}
        free = [each for each in there if each not in locked | self.behind]
        deliveries = []
        for number in free:
            token = uuid4()
            self._locks[token] = number
            deliveries.append(RemoteDelivery(self._message(number), token, token.bytes_le))
        await self.answers.wait()
        return LockedByNumber(
            deliveries=deliveries,
            unavailable=[each for each in there if each in locked - self.behind],
            unreached=[each for each in there if each in self.behind],
            missing=[each for each in numbers if each not in self.bodies],
        )

    def end_locks(self) -> None:
        """All locks end."""
        self._locks.clear()

    async def settle_deferred(
        self, lock_tokens: Sequence[UUID], outcome: RemoteOutcome, session_id: str | None = None
    ) -> None:
        """Complete, or lose the answer before it was done."""
        assert isinstance(outcome, Complete)
        if self.is_lost:
            raise RemoteConnectionLost("amqp:connection:forced", "lost", True)
        for token in lock_tokens:
            if token not in self._locks:
                raise RemoteLockLost("com.microsoft:message-lock-lost", "lost", False)
            number = self._locks.pop(token)
            del self.bodies[number]
            self.completed.append(number)

    async def release_messages(self, lock_tokens: Sequence[UUID]) -> None:
        """Give back."""
        for token in lock_tokens:
            self._locks.pop(token, None)


def selection(**fields: Any) -> MessageSelection:
    """Return what means the messages of the subject."""
    return MessageSelection.of("sys.Label = 'meant'", uuid4, **fields)


async def test_what_is_locked_while_the_command_stops_is_given_back() -> None:
    """Nobody has heard of these locks; they would last, and their end counts a delivery."""
    entity = ScriptedEntity(dict.fromkeys(range(1, 6), MEANT))
    entity.answers.clear()
    source = NumberedSource(entity, selection())
    reading = asyncio.create_task(source.receive(5, 60.0))
    while not entity.calls:  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(0)
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    closing = asyncio.create_task(source.close())
    entity.answers.set()
    await closing
    other = NumberedSource(entity, selection())
    assert [number_of(each) for each in await other.receive(5, 0.0)] == [1, 2, 3, 4, 5]
    assert other.rest() == []


STEPS = st.sampled_from(
    ["take", "complete", "lose answer", "release", "end locks", "lock elsewhere", "unlock", "die"]
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.dictionaries(st.integers(1, 30), st.sampled_from([MEANT, OTHER]), max_size=12),
    st.lists(st.tuples(STEPS, st.integers(0, 30)), max_size=30),
)
def test_each_message_that_is_meant_is_given_until_it_is_gone(
    bodies: dict[int, str], steps: list[tuple[str, int]]
) -> None:
    """Whatever others lock, and whichever locks and answers are lost; no other one is locked."""
    asyncio.run(_run(bodies, steps))


async def _run(bodies: dict[int, str], steps: list[tuple[str, int]]) -> None:
    entity = ScriptedEntity(dict(bodies))
    source = NumberedSource(entity, selection())
    in_hand: list[RemoteDelivery] = []

    async def settle(outcome: RemoteOutcome) -> None:
        with suppress(RemoteConnectionLost, RemoteLockLost):
            await source.settle(in_hand.pop(0), outcome)

    for what, number in steps:
        if what == "take":
            in_hand += await source.receive(number % 4 + 1, 0)
        elif what == "lock elsewhere" and number in entity.bodies:
            entity.elsewhere.add(number)
        elif what == "unlock":
            entity.elsewhere.discard(number)
        elif what == "die":
            entity.bodies[max([*entity.bodies, 30]) + 1] = MEANT
        elif what == "end locks":
            entity.end_locks()
            for each in in_hand:
                source.lost(each)
            in_hand.clear()
        elif in_hand:
            entity.is_lost = what == "lose answer"
            await settle(Release() if what == "release" else Complete())
            entity.is_lost = False
    entity.elsewhere.clear()
    entity.end_locks()
    for each in in_hand:
        source.lost(each)
    for _ in range(100):
        in_hand = await source.receive(3, 0)
        assert {entity.bodies[number_of(each)] for each in in_hand} <= {MEANT}
        if not in_hand:
            break
        while in_hand:
            await settle(Complete())
    assert MEANT not in entity.bodies.values()
    assert len(entity.completed) == len(set(entity.completed))
    assert source.rest() == []


async def test_what_was_not_to_be_had_is_named() -> None:
    """With the first of each kind."""
    entity = ScriptedEntity(dict.fromkeys(range(1, 6), MEANT))
    entity.elsewhere, entity.behind = {2, 3}, {5}
    source = NumberedSource(entity, selection())
    found = await source.receive(9, 0)
    assert [each.message.sequence_number for each in found] == [1, 4]
    for each in found:
        await source.settle(each, Complete())
    assert await source.receive(9, 0) == []
    behind, elsewhere = source.rest()
    assert behind.startswith("1 message, the first of them 5, stand")
    assert elsewhere.startswith("2 messages, the first of them 2, could not be had")


async def test_numbers_that_are_given_are_locked_without_a_look() -> None:
    """And when all are there, nothing is awaited."""
    entity = ScriptedEntity({4: MEANT, 7: OTHER, 8: MEANT})
    source = NumberedSource(entity, MessageSelection(numbers=(8, 4)))
    found = await source.receive(9, 3600)
    assert [each.message.sequence_number for each in found] == [4, 8]
    assert await source.receive(9, 3600) == []
    assert entity.calls == 1


async def test_what_is_not_settled_at_the_end_goes_back() -> None:
    """For whoever comes next."""
    entity = ScriptedEntity({1: MEANT, 2: MEANT})
    source = NumberedSource(entity, selection())
    assert len(await source.receive(9, 0)) == 2
    await source.close()
    assert len((await entity.lock_messages((1, 2))).deliveries) == 2


async def test_a_given_number_that_is_not_there_yet_is_awaited() -> None:
    """It may be on its way."""
    entity = ScriptedEntity({})
    source = NumberedSource(entity, MessageSelection(numbers=(1,)))
    assert await source.receive(9, 0) == []
    entity.bodies[1] = MEANT
    assert len(await source.receive(9, 0)) == 1
