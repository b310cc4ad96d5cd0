"""Moves of scheduled messages: each message is there once, wherever the leader is killed."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from bridge.machine.inbox.arrival import Cancel, Move, RefusedItem, ReplyTo, read
from bridge.machine.inbox.replay import Replay
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.wheel import place
from bridge.model.entity import Queue, Tier
from bridge.wire import envelope, headers, stamp
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item, Operation
from bridge.wire.reply import Done, decode_reply
from tests.fixtures.examples import examples
from tests.unit.machine.test_sequencer_under_kills import (
    BARE,
    SequencerUnderKills,
    TopicUnderKills,
)

IDENTITY = bytes(range(16))
NOW_MS = 1_000_000
DUE_MS = NOW_MS + 60_000
LATER_MS = NOW_MS + 90_000
SENDER = ReplyTo("sender", "1")

if TYPE_CHECKING:
    Base = SequencerUnderKills
else:
    Base = object


class Moves(Base):
    """Adds moves, asked once or twice, to a machine of sends, cancels and kills."""

    def __init__(self) -> None:
        self.numbered: dict[int, bytes] = {}
        self.replaced: dict[bytes, bytes] = {}
        self.cancelled: set[int] = set()
        super().__init__()

    @rule(
        chance=st.randoms(use_true_random=False),
        count=st.integers(1, 3),
        delay=st.sampled_from([-5, 50, 5000]),
        times=st.integers(1, 2),
    )
    def move(self, chance: random.Random, count: int, delay: int, times: int) -> None:
        """A door moves some of what waits, or has just been due; it may ask twice."""
        self._look()
        assert self.sequencer is not None
        waiting = sorted(number for number, _ in self.sequencer.memory.pending)
        found = waiting or sorted(self.numbered)[-3:]
        if not found:
            return
        numbers = chance.sample(found, min(count, len(found)))
        self.sent += 1
        identity = self.sent.to_bytes(16, "big")
        items = [Item(BARE, b"", None, self.now_ms + delay) for _ in numbers]
        body = envelope.encode_move(identity, numbers, items)
        self.rabbit.inbox += [(envelope.SILENT_PROPERTIES, body)] * times
        for index, number in enumerate(numbers):
            new = envelope.item_identity(identity, index)
            self.identities.add(new)
            self.replaced[new] = self.numbered[number]

    @rule(chance=st.randoms(use_true_random=False))
    def cancel(self, chance: random.Random) -> None:
        """A door cancels something that waits."""
        self._look()
        before = len(self.rabbit.inbox)
        super().cancel(chance)
        for _, body in self.rabbit.inbox[before:]:
            self.cancelled.update(envelope.decode(body).numbers)

    def _look(self) -> None:
        """Learn the numbers of scheduled messages."""
        on_their_way = [each for flight in self.flights for each in flight.publications]
        stored = [properties for properties, _ in self.rabbit.journal]
        for raw in [*stored, *(each.properties for each in on_their_way)]:
            if headers.WAITING in (Properties.decode(raw).headers or {}):
                waiting = stamp.unwait(raw)
                self.numbered[waiting.number] = waiting.identity

    def _all_are_there(self, active: set[object]) -> None:
        """Check that of each message, and all that took its place, one is active."""
        self._look()
        assert active <= self.identities
        there: dict[bytes, int] = {}
        for identity in self.identities:
            first = self._first(identity)
            there[first] = there.get(first, 0) + (identity in active)
        cancelled = {self._first(self.numbered[number]) for number in self.cancelled}
        for first, count in there.items():
            assert count <= 1, "a moved message is there twice"
            assert count == 1 or first in cancelled, "a moved message is lost"

    def _first(self, identity: bytes) -> bytes:
        while identity in self.replaced:
            identity = self.replaced[identity]
        return identity


class MovesUnderKills(Moves, SequencerUnderKills):
    """Moves in a queue."""


class MovesOfTopicUnderKills(Moves, TopicUnderKills):
    """Moves in a topic."""


TestMovesUnderKills = MovesUnderKills.TestCase
TestMovesUnderKills.settings = settings(
    max_examples=examples(200), stateful_step_count=30, deadline=None
)

TestMovesOfTopicUnderKills = MovesOfTopicUnderKills.TestCase
TestMovesOfTopicUnderKills.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)


def sequencer(**properties: bool) -> Sequencer:
    """A queue's sequencer, with buckets for all times of this file."""
    queue = Queue(name="orders", **properties)
    replay = Replay(is_partitioned=False, readers=set(), fingerprint="boot")
    made = Sequencer(queue, Tier.STANDARD, replay.result())
    for due_ms in (DUE_MS, LATER_MS):
        made.memory.wheel.add(place(due_ms, NOW_MS))
    return made


def scheduled(made: Sequencer, count: int, digest: bytes | None = None) -> list[int]:
    """Schedule messages, and return their numbers."""
    items = [Item(BARE, b"x", None, DUE_MS, digest=digest) for _ in range(count)]
    raw = envelope.encode(Operation.SCHEDULE, bytes(16), items)
    made.apply(read(envelope.SILENT_PROPERTIES, raw), NOW_MS)
    return sorted(number for number, _ in made.memory.pending)


def item(digest: bytes | None = None) -> Item:
    """A message for later."""
    return Item(BARE, b"x", None, LATER_MS, digest=digest)


def test_a_move_is_a_cancel_and_then_the_new_messages_in_one_hand_over() -> None:
    """So that an old one waits no more, however little a killed leader has published."""
    made = sequencer()
    (old,) = scheduled(made, 1)
    applied = made.apply(Move(IDENTITY, [old], [item()], SENDER), NOW_MS)
    first, second = applied.publications
    assert (Properties.decode(first.properties).headers or {})[headers.ENTRY] == ("S", b"cancel")
    assert stamp.unwait(second.properties).number == old + 1
    assert dict(made.memory.pending) == {old + 1: LATER_MS}
    assert applied.answer is not None
    assert decode_reply(applied.answer.body) == Done((old + 1,))


@pytest.mark.parametrize("asked", [2, 7])
def test_of_a_move_with_a_message_that_is_not_scheduled_nothing_is_done(asked: int) -> None:
    """It is named."""
    made = sequencer()
    (old,) = scheduled(made, 1)
    before = dict(made.memory.pending), list(made.memory.counters)
    applied = made.apply(Move(IDENTITY, [old, asked], [item(), item()], SENDER), NOW_MS)
    assert (dict(made.memory.pending), list(made.memory.counters)) == before
    assert not applied.publications
    assert applied.answer is not None
    assert f"SequenceNumber = {asked}".encode() in applied.answer.body


def test_a_move_that_is_asked_for_twice_is_one() -> None:
    """The number is no scheduled message's any more."""
    made = sequencer()
    (old,) = scheduled(made, 1)
    move = Move(IDENTITY, [old], [item()], SENDER)
    made.apply(move, NOW_MS)
    assert not made.apply(move, NOW_MS).publications
    assert dict(made.memory.pending) == {old + 1: LATER_MS}


def test_a_moved_message_is_no_duplicate_of_the_one_that_it_replaces() -> None:
    """The id stays accepted: another message of that id is a duplicate."""
    made = sequencer(requires_duplicate_detection=True)
    (old,) = scheduled(made, 1, b"d" * 16)
    made.apply(Move(IDENTITY, [old], [item(b"d" * 16)], SENDER), NOW_MS)
    assert dict(made.memory.pending) == {old + 1: LATER_MS}
    scheduled(made, 1, b"d" * 16)
    assert (len(made.memory.pending), made.duplicates) == (1, 1)


def test_a_move_that_fails_changes_nothing() -> None:
    """The old messages wait as before."""
    made = sequencer()
    (old,) = scheduled(made, 1)
    broken = Item(b"no properties", b"x", None, LATER_MS)
    with pytest.raises(struct.error):
        made.apply(Move(IDENTITY, [old], [broken], SENDER), NOW_MS)
    assert dict(made.memory.pending) == {old: DUE_MS}
    assert made.memory.counters == [old]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5, unique=True))
def test_a_move_comes_back_from_its_envelope(numbers: list[int]) -> None:
    """And is refused when it is cut short."""
    items = [Item(BARE, b"x" * index, None, LATER_MS) for index in range(len(numbers))]
    raw = envelope.encode_move(IDENTITY, numbers, items)
    command = read(envelope.SILENT_PROPERTIES, raw)
    assert isinstance(command, Move)
    assert (list(command.numbers), list(command.items)) == (numbers, items)
    for at in range(len(raw)):
        assert isinstance(read(envelope.SILENT_PROPERTIES, raw[:at]), RefusedItem)


def test_a_cancel_behind_a_move_names_the_new_number() -> None:
    """The old one is unknown."""
    made = sequencer()
    (old,) = scheduled(made, 1)
    made.apply(Move(IDENTITY, [old], [item()], None), NOW_MS)
    assert not made.apply(Cancel(bytes(16), [old], None), NOW_MS).publications
    assert made.apply(Cancel(bytes(16), [old + 1], None), NOW_MS).publications
    assert not made.memory.pending
