"""An envelope with messages that make the sequencer fail: these alone become dead letters."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox.arrival import ReplyTo, SendCommand, read, unreadable
from bridge.machine.inbox.poisoned_envelope import apply_each, is_divisible
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.replay import Replay
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import DEFAULT_RULE, Rule, SqlFilter, Subscription, Tier, Topic
from bridge.wire import envelope, headers, stamp
from bridge.wire.basic import Properties, Table, text
from bridge.wire.envelope import Item, Operation, item_identity

POISON = Rule(
    name="poison", filter=SqlFilter(expression="color = 'poison'"), action="SET a = newid()"
)
TOPIC = Topic(
    name="events",
    subscriptions=(
        Subscription(topic="events", name="all", incarnation="all", rules=(DEFAULT_RULE,)),
        Subscription(topic="events", name="odd", incarnation="odd", rules=(POISON,)),
    ),
)
UNREADABLE = "unreadable"
"""Of a message whose properties are none."""

IDENTITY = bytes(range(16))


class Failed(Exception):
    """What nobody has foreseen."""


def failing() -> UUID:
    """Fail where a rule asks for an id."""
    raise Failed


def send(colors: list[str]) -> SendCommand:
    """An envelope of messages of these colors, as a leader reads it."""
    items = [
        Item(
            b"?"
            if color == UNREADABLE
            else Properties(delivery_mode=2, headers={"color": text(color)}).encode(),
            b"%d" % number,
        )
        for number, color in enumerate(colors)
    ]
    body = envelope.encode(Operation.SEND, IDENTITY, items)
    command = read(envelope.SILENT_PROPERTIES, body)
    assert isinstance(command, SendCommand)
    return command


def table_of(publication: Publication) -> Table:
    """Return a publication's headers."""
    return Properties.decode(publication.properties).headers or {}


COLORS = st.lists(st.sampled_from(["red", "poison", UNREADABLE]), min_size=2, max_size=8)


@given(COLORS)
def test_only_poison_becomes_a_dead_letter(colors: list[str]) -> None:
    """Numbers rise by one, each healthy message has its own identity, each poison its body."""
    sequencer = Sequencer(TOPIC, Tier.STANDARD, blank(is_partitioned=False), failing)
    command = send(colors)
    assert is_divisible(command)
    if "poison" in colors:
        with pytest.raises(Failed):
            sequencer.apply(command, 1_000)

    outcome = apply_each(sequencer, command, 1_000)

    assert [each.body for each in outcome.publications] == [b"%d" % n for n in range(len(colors))]
    tables = [table_of(each) for each in outcome.publications]
    assert [each[headers.SEQUENCE_NUMBER][1] for each in tables] == [*range(1, len(colors) + 1)]
    for index, (color, table) in enumerate(zip(colors, tables, strict=True)):
        is_dead = headers.DEAD_LETTER_REASON in table
        assert is_dead == (color != "red")
        if not is_dead:
            assert table[headers.IDENTITY][1] == envelope.item_identity(IDENTITY, index)


@given(COLORS, st.data())
def test_a_successor_gives_no_message_a_second_number(
    colors: list[str], data: st.DataObject
) -> None:
    """A leader dies with a part of the envelope in its journal; the arrival comes again."""
    elder = Sequencer(TOPIC, Tier.STANDARD, blank(is_partitioned=False), failing)
    made = apply_each(elder, send(colors), 1_000).publications
    reached = made[: data.draw(st.integers(0, len(made)))]
    replay = Replay(is_partitioned=False, readers=set(), fingerprint="boot")
    for each in reached:
        replay.feed(Properties.decode(each.properties), each.body)
    successor = Sequencer(TOPIC, Tier.STANDARD, replay.result(), failing)

    again = apply_each(successor, send(colors), 2_000).publications

    def numbers(publications: list[Publication]) -> dict[bytes, object]:
        return {
            each.body: table_of(each)[headers.SEQUENCE_NUMBER][1]
            for each in publications
            if headers.DEAD_LETTER_REASON not in table_of(each)
        }

    before, after = numbers([*reached]), numbers([*again])
    assert all(after[body] == number for body, number in before.items() if body in after)
    every = [*before.values(), *(number for body, number in after.items() if body not in before)]
    assert len(set(every)) == len(every)


def test_an_envelope_that_cannot_even_be_buried_has_changed_nothing() -> None:
    """It comes again in the next term of the process, and no message of it is a duplicate then."""
    fails = [False, True, False, True, True, True]
    """Whether a rule fails: for the envelope, for each message, for what is left of the second."""

    def new_id() -> UUID:
        if fails and fails.pop(0):
            raise Failed
        return UUID(int=1)

    everything = Rule(name="everything", filter=DEFAULT_RULE.filter, action="SET a = newid()")
    subscription = Subscription(topic="events", name="all", incarnation="1", rules=(everything,))
    topic = Topic(name="events", requires_duplicate_detection=True, subscriptions=(subscription,))
    sequencer = Sequencer(topic, Tier.STANDARD, blank(is_partitioned=False), new_id)
    command = send(["red", "red"])
    for number, item in enumerate(command.items):
        item.digest = b"%016d" % number
    with pytest.raises(Failed):
        sequencer.apply(command, 1_000)
    with pytest.raises(Failed):
        apply_each(sequencer, command, 1_000)
    assert not fails

    tables = [table_of(each) for each in sequencer.apply(command, 2_000).publications]

    journaled = [each for each in tables if headers.IDENTITY in each]
    assert {each[headers.SEQUENCE_NUMBER][1] for each in journaled} == {1, 2}
    assert sequencer.duplicates == 0


def test_a_due_message_that_fails_takes_no_number() -> None:
    """The dead letter has the next one: there is no gap."""
    sequencer = Sequencer(TOPIC, Tier.STANDARD, blank(is_partitioned=False), failing)
    later = replace(send(["poison"]).items[0], scheduled_ms=2_000)
    sequencer.apply(SendCommand(IDENTITY, (later,)), 1_000)
    waiting = stamp.Waiting(1, item_identity(IDENTITY, 0), 2_000, None, later.properties)
    subscriptions = dict(sequencer.memory.subscriptions)
    with pytest.raises(Failed):
        sequencer.activate(waiting, b"0", 2_000)

    assert sequencer.memory.counters == [1]
    assert sequencer.memory.subscriptions == subscriptions
    (dead,) = sequencer.apply(unreadable(b"0", Failed()), 2_000).publications
    assert table_of(dead)[headers.SEQUENCE_NUMBER][1] == 2


def test_a_waiting_senders_envelope_is_one() -> None:
    """A sender that waits for all numbers of a schedule gets them all or none."""
    both = send(["red", "red"])
    assert not is_divisible(replace(both, reply_to=ReplyTo("queue", "1")))
    assert not is_divisible(replace(both, items=both.items[:1]))
