"""Subscriptions that are left out: what is published without them, and what a successor knows."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.journal_entries import marker
from bridge.machine.inbox.left_out import (
    Missed,
    as_missed,
    decode,
    encode,
    first_copies,
    for_one,
    without,
)
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.replay import Replay
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import Memory, blank
from bridge.model.entity import Subscription, Tier, Topic
from bridge.model.name import short_id
from bridge.topology import names
from bridge.wire import copies, headers
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item
from bridge.wire.sections import MalformedEntry

AUDIT, BILLING = short_id("audit"), short_id("billing")
TOPIC = Topic(
    name="t",
    subscriptions=tuple(
        Subscription(topic="t", name=name, incarnation=name) for name in ("audit", "billing")
    ),
)
ACTIVE = names.active_exchange("t")
BARE = Properties(delivery_mode=2).encode()


def a_sequencer(memory: Memory | None = None) -> Sequencer:
    """A topic's sequencer."""
    memory = memory or blank(is_partitioned=False)
    return Sequencer(TOPIC, Tier.STANDARD, memory, lambda: UUID(int=0))


def send(sequencer: Sequencer, number: int) -> Publication:
    """Send one message."""
    command = SendCommand(bytes([number] * 16), (Item(BARE, b"body"),))
    (publication,) = sequencer.apply(command, 1_000).publications
    return publication


def keys(publication: Publication) -> set[str]:
    """The keys that a publication reaches beside its own."""
    table = Properties.decode(publication.properties).headers or {}
    listed = table.get("BCC", ("A", []))[1]
    assert isinstance(listed, list)
    return {key.decode() for _, key in listed if isinstance(key, bytes)}


def numbers(publication: Publication) -> dict[bytes, int]:
    """The numbers that a publication lists."""
    raw = (Properties.decode(publication.properties).headers or {})[headers.COPIES][1]
    assert isinstance(raw, bytes)
    return dict(copies.decode(raw)[0])


def test_what_is_left_out_has_its_number_and_is_not_reached() -> None:
    """The journal lists all copies; when it is whole again the queue is reached again."""
    sequencer = a_sequencer()
    send(sequencer, 1)
    sequencer.memory.left_out[AUDIT] = Missed(2, 0)
    second = send(sequencer, 2)
    assert keys(second) == {names.copy_key(BILLING)}
    assert numbers(second) == {AUDIT: 2, BILLING: 2}
    sequencer.memory.left_out[BILLING] = Missed(3, 0)
    third = send(sequencer, 3)
    assert keys(third) == set()
    assert (third.exchange, third.routing_key) == (ACTIVE, names.JOURNAL_KEY)
    sequencer.memory.left_out.clear()
    assert keys(send(sequencer, 4)) == {names.copy_key(AUDIT), names.copy_key(BILLING)}


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_a_successor_knows_who_is_left_out(*, is_snapshot: bool) -> None:
    """From the entry that says so, and from a snapshot behind it."""
    sequencer = a_sequencer()
    entries = [send(sequencer, 1)]
    sequencer.memory.left_out[AUDIT] = Missed(1, 77)
    entries.append(sequencer.journal.note_left_out(sequencer.memory))
    if is_snapshot:
        entries += sequencer.snapshot(bytes(16), "boot", 0)
    replay = Replay(is_partitioned=False, readers=(), fingerprint="boot")
    for each in [marker(TOPIC, bytes(16), "boot"), *entries]:
        replay.feed(Properties.decode(each.properties), each.body)
    assert not replay.unreadable
    memory = replay.result()
    assert memory.left_out == {AUDIT: Missed(1, 77)}
    assert keys(send(a_sequencer(memory), 2)) == {names.copy_key(BILLING)}


def test_who_is_whole_again_is_known_too() -> None:
    """The last entry counts."""
    sequencer = a_sequencer()
    sequencer.memory.left_out[AUDIT] = Missed(1, 77)
    entries = [
        sequencer.journal.note_left_out(sequencer.memory),
        *sequencer.snapshot(bytes(16), "boot", 0),
    ]
    sequencer.memory.left_out.clear()
    entries.append(sequencer.journal.note_left_out(sequencer.memory))
    replay = Replay(is_partitioned=False, readers=(), fingerprint="boot")
    for each in entries:
        replay.feed(Properties.decode(each.properties), each.body)
    assert replay.result().left_out == {}


def test_the_first_copy_on_its_way_to_each_is_found_and_reaches_it_alone() -> None:
    """Subscriptions that are left out already are not among them."""
    sequencer = a_sequencer()
    on_way = [send(sequencer, number) for number in (1, 2, 3)]
    found = first_copies([on_way[1], on_way[0], on_way[2]], ACTIVE)
    assert {short: number for short, (number, _) in found.items()} == {AUDIT: 1, BILLING: 1}
    alone = for_one(found[AUDIT][1], AUDIT)
    assert (alone.exchange, alone.routing_key, keys(alone)) == (
        ACTIVE,
        names.copy_key(AUDIT),
        set(),
    )
    spared = [without(each, {AUDIT}, ACTIVE) for each in on_way]
    assert [keys(each) for each in spared] == [{names.copy_key(BILLING)}] * 3
    assert [numbers(each) for each in spared] == [numbers(each) for each in on_way]
    assert first_copies(spared, ACTIVE).keys() == {BILLING}


def test_what_goes_elsewhere_stays_as_it_is() -> None:
    """A marker has no copies, and a bucket is no subscription's."""
    entry = marker(TOPIC, bytes(16), "boot")
    assert first_copies([entry], ACTIVE) == {}
    assert without(entry, {AUDIT}, ACTIVE) is entry


def test_a_missed_message_has_the_time_that_is_left_and_its_byte_arrays_back() -> None:
    """A stream of RabbitMQ 4 gives byte arrays back as strings."""
    table = {headers.COPIES: ("S", b"\x00\x01raw"), "mine": ("S", b"text")}
    again = Properties.decode(as_missed(Properties(headers=dict(table)), 250))
    assert again.headers == {headers.COPIES: ("x", b"\x00\x01raw"), "mine": ("S", b"text")}
    assert (again.expiration, again.delivery_mode) == ("250", 2)
    for left_ms in (None, 2**60):
        assert Properties.decode(as_missed(Properties(), left_ms)).expiration is None


@given(
    st.dictionaries(
        st.binary(min_size=6, max_size=6),
        st.builds(Missed, st.integers(1, 2**62), st.integers(0, 2**62)),
    )
)
def test_it_is_written_and_read(left_out: dict[bytes, Missed]) -> None:
    """And what is cut short is refused."""
    raw = encode(left_out)
    assert decode(raw) == left_out
    with pytest.raises(MalformedEntry):
        decode(raw + b"x")
