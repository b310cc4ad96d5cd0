"""What an undo believes: a peek for what it shows, and locks for what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.commands import undo_reading
from bridge.commands.undo_reading import chunks
from bridge.operations.undo_file import Taken, UndoHead
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteRefused
from bridge.remote.management import LockedByNumber, RemoteManagement
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Timestamp
from tests.fixtures.waiting import until

HEAD = UndoHead(verb="purge", namespace="here", entity="orders/$DeadLetterQueue")


def message(number: int, enqueued_ms: int = 5) -> RemoteMessage:
    """A message of the source."""
    annotations: dict[str, Any] = {
        "x-opt-sequence-number": number,
        "x-opt-enqueued-time": Timestamp(enqueued_ms),
    }
    return RemoteMessage.of(annotations=annotations)


class GuessingSource(RemoteManagement):
    """A source whose peeks show other messages than it has.

    Attributes:
        there: the numbers of its messages.
        shown: what its peeks show.
        elsewhere: numbers that somebody else has locked.
        unsure: numbers of which it does not know whether they are there.
        locked: what is locked by the undo, by token.
        answers: what was locked is told when this is set.
    """

    def __init__(self, there: set[int], shown: set[int]) -> None:
        self.there = there
        self.shown = shown
        self.elsewhere: set[int] = set()
        self.unsure: set[int] = set()
        self.locked: dict[UUID, int] = {}
        self.locks = True
        self.at_once = 250
        self.answers = asyncio.Event()
        self.answers.set()

    async def peek(
        self, from_number: int, count: int, session_id: str | None = None
    ) -> list[RemoteMessage]:
        """Show a short page."""
        return [message(each) for each in sorted(self.shown) if each >= from_number][:3]

    async def lock_messages(self, numbers: Sequence[int]) -> LockedByNumber:
        """Lock what is there; a few at a time, as of large ones."""
        if not self.locks:
            raise RemoteRefused("amqp:not-implemented", "no")
        free = [each for each in numbers if each in self.there - self.elsewhere]
        free = free[: self.at_once]
        tokens = {uuid4(): each for each in free}
        self.locked |= tokens
        await self.answers.wait()
        rest = [each for each in numbers if each not in free]
        known = self.shown | self.unsure
        return LockedByNumber(
            deliveries=[
                RemoteDelivery(message(number), token, token.bytes_le)
                for token, number in tokens.items()
            ],
            unavailable=[each for each in rest if each in known],
            unreached=[],
            missing=[each for each in rest if each not in known],
        )

    async def release_messages(self, lock_tokens: Sequence[UUID]) -> None:
        """Give them back."""
        for each in lock_tokens:
            del self.locked[each]


class Namespace:
    """Leads to the source."""

    def __init__(self, source: GuessingSource) -> None:
        self._source = source

    async def management(self, entity: str) -> RemoteManagement:
        """Return its operations."""
        return self._source


async def there(source: GuessingSource, numbers: Sequence[int]) -> set[int]:
    """Return the numbers that an undo takes for messages of the source."""
    lines = iter([(at, Taken(message(each))) for at, each in enumerate(numbers, 2)])
    namespace = cast(Any, Namespace(source))
    return {
        taken.number
        async for chunk in chunks(namespace, HEAD, lines)
        for _, taken, is_there in chunk
        if is_there
    }


NUMBERS = st.sets(st.integers(1, 12))


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(1, 4), st.integers(1, 12))
def test_nothing_is_taken_for_gone_that_is_there(
    has: set[int], shown: set[int], elsewhere: set[int], wanted: set[int], some: int, chunk: int
) -> None:
    """Whatever its peeks show, but for what somebody holds and the source says is not there.

    What is locked for that goes back at once.
    """

    async def play() -> None:
        source = GuessingSource(has, shown)
        source.elsewhere, source.unsure, source.at_once = elsewhere, elsewhere & has, some
        found = await there(source, sorted(wanted))
        assert found == wanted & (has | shown)
        assert not source.locked

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(undo_reading, "CHUNK", chunk)
        asyncio.run(play())


async def test_a_source_made_anew_has_other_messages_with_these_numbers() -> None:
    """They are locked, and are not those of the file."""
    source = GuessingSource({1}, set())
    lines = iter([(2, Taken(message(1, enqueued_ms=6)))])
    namespace = cast(Any, Namespace(source))
    (chunk,) = [each async for each in chunks(namespace, HEAD, lines)]
    assert [is_there for _, _, is_there in chunk] == [False]
    assert not source.locked


async def test_a_source_that_cannot_lock_by_number_is_believed() -> None:
    """Azure's peeks show what is there."""
    source = GuessingSource({1, 2}, {1})
    source.locks = False
    assert await there(source, [1, 2, 3]) == {1}


async def test_an_undo_that_is_cut_off_leaves_nothing_locked() -> None:
    """The request has happened, though nobody waits for it."""
    source = GuessingSource({1}, set())
    source.answers.clear()
    asking = asyncio.create_task(there(source, [1]))
    await until(lambda: source.locked)
    asking.cancel()
    await asyncio.sleep(0)
    source.answers.set()
    await asyncio.gather(asking, return_exceptions=True)
    assert asking.cancelled()
    assert not source.locked
