"""Forwarded messages at their target: a copy that comes again gets no second number."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox import arrival, forwarded
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.forwarded import KEPT_MAX, KEPT_MIN, Forwarded
from bridge.machine.inbox.journal_entries import marker
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.replay import Replay
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import Memory, blank
from bridge.model.entity import Queue, Subscription, Tier, Topic
from bridge.wire import headers, stamp
from bridge.wire.basic import Properties, text
from bridge.wire.canonical import is_canonical
from bridge.wire.envelope import SILENT_PROPERTIES, Item, Operation, decode, encode
from bridge.wire.forwarded import field, hops_of, identity_of, last_source, source_of
from bridge.wire.sections import MalformedEntry

SOURCE, OTHER = (
    source_of(b"source", is_dead_letter=False),
    source_of(b"source", is_dead_letter=True),
)
QUEUE = Queue(name="orders")
TERM = bytes(16)


def item_of(source: bytes = SOURCE, hops: int = 1) -> Item:
    """Return a message that was forwarded, as its forwarder writes it."""
    table = {headers.FORWARDED: field(source, hops), headers.ENQUEUED_SEQUENCE_NUMBER: ("l", 7)}
    raw = Properties(headers={**table, "a": text("b")}, delivery_mode=2).encode()
    return Item(raw, b"body", source=source)


def a_sequencer(memory: Memory | None = None, entity: Queue | Topic = QUEUE) -> Sequencer:
    """Return a sequencer that has given no number, or begins with this memory."""
    return Sequencer(entity, Tier.STANDARD, memory or blank(is_partitioned=False), uuid)


def uuid() -> object:
    """No rule here asks for a new id."""
    raise AssertionError


def forward(sequencer: Sequencer, number: int, source: bytes = SOURCE) -> list[Publication]:
    """Have the message of this number in its source forwarded."""
    identity = identity_of(source, (number, 0))
    return list(sequencer.apply(SendCommand(identity, (item_of(source),)), 0).publications)


def learnt(entries: list[Publication]) -> Memory:
    """Return what a successor knows by these entries."""
    replay = Replay(is_partitioned=False, readers={TERM}, fingerprint="boot")
    for each in [*entries, marker(QUEUE, TERM, "boot")]:
        replay.feed(Properties.decode(each.properties), each.body)
    assert replay.unreadable == []
    memory = replay.result()
    memory.known = {}  # as when all that was unacked has come again
    return memory


def test_a_message_that_is_forwarded_again_gets_no_second_number() -> None:
    """The dead letters of an entity are another source than its messages."""
    sequencer = a_sequencer()
    assert [len(forward(sequencer, number)) for number in (1, 2, 1)] == [1, 1, 0]
    assert len(forward(sequencer, 1, OTHER)) == 1
    assert sequencer.memory.counters == [3]


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_successor_knows_what_was_forwarded(*, with_snapshot: bool) -> None:
    """By the entries behind the last snapshot, and by the snapshot."""
    sequencer = a_sequencer()
    entries = forward(sequencer, 1) + forward(sequencer, 2)
    if with_snapshot:
        entries = [*sequencer.snapshot(TERM, "boot", 0), *forward(sequencer, 3)]
    successor = a_sequencer(learnt(entries))
    assert [len(forward(successor, number)) for number in (1, 2, 3)] == (
        [0, 0, 0] if with_snapshot else [0, 0, 1]
    )


def test_a_topics_copies_that_an_action_changed_are_no_forwarded_messages() -> None:
    """They have the header, and an identity of their own."""
    topic = Topic(name="t", subscriptions=(Subscription(topic="t", name="s", incarnation="i"),))
    sequencer = a_sequencer(entity=topic)
    (entry,) = forward(sequencer, 1)
    table = Properties.decode(entry.properties).headers or {}
    own = {**table, headers.IDENTITY: ("x", stamp.derived(bytes(20), b"rule"))}
    copy = replace_headers(entry, own)
    assert len(learnt([entry, copy]).forwarded) == 1


def replace_headers(entry: Publication, table: object) -> Publication:
    """Return an entry with other headers."""
    properties = Properties.decode(entry.properties)
    return entry._replace(properties=replace(properties, headers=table).encode())


def test_a_scheduled_message_that_was_forwarded_keeps_what_its_forwarder_said() -> None:
    """Also when RabbitMQ has added headers of its own in the bucket."""
    item = item_of(hops=3)
    fields = stamp.waiting(5, bytes(20), 9, None) + stamp.copy_to("journal")
    raw = stamp.put(item.properties, fields)
    for properties in (raw, stamp.put(raw, b"\x10x-delivery-countl" + bytes(8))):
        table = Properties.decode(stamp.unwait(properties).properties).headers or {}
        assert (hops_of(table), last_source(table)) == (3, SOURCE)
        assert table[headers.ENQUEUED_SEQUENCE_NUMBER] == ("l", 7)


def test_an_envelope_says_what_its_message_is_forwarded_from() -> None:
    """Its properties may go on as they are; a native publisher's claim is taken off."""
    item = item_of()
    assert is_canonical(item.properties)
    body = encode(Operation.SEND, bytes(16), [item])
    assert list(decode(body).items) == [item]
    command = arrival.read(SILENT_PROPERTIES, body)
    assert isinstance(command, SendCommand)
    assert command.items[0].source == SOURCE
    native = arrival.read(item.properties, b"x")
    assert isinstance(native, SendCommand)
    table = Properties.decode(native.items[0].properties).headers or {}
    assert (hops_of(table), headers.ENQUEUED_SEQUENCE_NUMBER in table) == (0, False)


def test_nothing_is_remembered_of_what_could_not_be_numbered() -> None:
    """It becomes a dead letter, and may be forwarded anew."""
    sequencer = a_sequencer()
    broken = Item(b"", b"", source=SOURCE)
    with pytest.raises((IndexError, ValueError)):
        sequencer.apply(SendCommand(identity_of(SOURCE, (1, 0)), (broken,)), 0)
    assert len(sequencer.memory.forwarded) == 0
    assert len(forward(sequencer, 1)) == 1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 700)), max_size=300),
    st.sampled_from([KEPT_MIN, KEPT_MAX]),
)
def test_of_each_source_the_last_are_known(noted: list[tuple[int, int]], kept: int) -> None:
    """And the same after encoding; nothing that was not noted is ever known."""
    memory = Forwarded()
    last: dict[bytes, OrderedDict[bytes, None]] = {}
    for number, message in noted:
        source, identity = bytes([number] * 7), message.to_bytes(16, "big")
        memory.note(source, identity)
        last.setdefault(source, OrderedDict())[identity] = None
        last[source].move_to_end(identity)
    for known in (memory, Forwarded.decode(memory.encode())):
        for source, seen in last.items():
            assert all(known.has(source, each) for each in list(seen)[-kept:])
            assert not known.has(source, b"\xff" * 16)
    if memory.encode():
        with pytest.raises(MalformedEntry):
            Forwarded.decode(memory.encode()[:-1])


def test_the_memory_is_bounded() -> None:
    """By source, and by the number of sources."""
    memory = Forwarded()
    for number in range(3 * KEPT_MAX):
        memory.note(SOURCE, number.to_bytes(16, "big"))
    assert len(memory) == KEPT_MAX
    for number in range(forwarded.SOURCES_MAX + 10):
        memory.note(number.to_bytes(7, "big"), bytes(16))
    assert len(memory) <= forwarded.SOURCES_MAX + KEPT_MAX
