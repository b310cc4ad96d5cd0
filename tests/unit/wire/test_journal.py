"""The journal's entries: the format that is written, and those to come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox.known import (
    Known,
    add_activated_copies,
    add_copies,
    decode_activated,
    decode_cancelled,
    decode_known,
    encode_activated,
    encode_activated_copies,
    encode_cancelled,
    encode_copies,
    encode_known,
)
from bridge.machine.inbox.replay import Replay
from bridge.wire import headers, journal, sections
from bridge.wire.basic import Properties
from bridge.wire.journal import BucketState, JournalSection, Marker
from bridge.wire.sections import OPTIONAL, MalformedEntry, NewerJournal
from bridge.wire.snapshot import PART_BYTES_MAX, Snapshot, SnapshotParts

TERM = bytes(range(16))
UNKNOWN = 0x0123

WHOLE = Snapshot(
    term=TERM,
    fingerprint="boot",
    enqueued_ms=1_700_000_000_000,
    span=7,
    average_bytes=512,
    counters=[41, 42],
    buckets=[(0, 5, True), (1, 6, False)],
    pending=b"index" * 100,
    known=b"known",
    activated=b"activated",
    cancelled=b"cancelled",
)


def put_together(bodies: list[bytes]) -> Snapshot | None:
    """Return what the parts of a snapshot give."""
    parts = SnapshotParts()
    found = [parts.add(body) for body in bodies]
    assert not any(found[:-1])
    return found[-1]


def test_a_snapshot_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole or in many parts."""
    assert put_together(WHOLE.encode(1)) == WHOLE
    large = Snapshot(TERM, "boot", 1, 0, 1, [1], pending=bytes(2 * PART_BYTES_MAX))
    bodies = large.encode(2)
    assert len(bodies) == 3
    assert put_together(bodies) == large


def test_markers_buckets_and_cancels_are_read_as_they_were_written() -> None:
    """Each is one section."""
    assert Marker.decode(Marker(TERM, "boot").encode()) == Marker(TERM, "boot")
    for state in BucketState:
        assert journal.decode_bucket(journal.encode_bucket(2, 77, state)) == (2, 77, state)
    for numbers in ((), (1,), (1, 2**62, 3)):
        assert journal.decode_cancel(journal.encode_cancel(numbers)) == numbers


def test_a_newer_version_is_refused_by_name() -> None:
    """Guessing would give a number twice."""
    newer = b"\x03" + TERM
    for read in (Marker.decode, journal.decode_bucket, SnapshotParts().add):
        with pytest.raises(NewerJournal, match=r"version 3.*run a bridge that is at least as new"):
            read(newer)
    with pytest.raises(NewerJournal):
        journal.decode_cancel(b"\x03")


def test_an_unknown_section_is_refused_unless_it_is_optional() -> None:
    """So another feature's sections are added."""
    writer = (JournalSection.WRITER, TERM + b"boot")
    for optional in ((UNKNOWN | OPTIONAL, b"?"), (0xFFFF, b"")):
        assert Marker.decode(sections.encode([optional, writer])) == Marker(TERM, "boot")
    with pytest.raises(NewerJournal, match=f"a section of kind {UNKNOWN}"):
        Marker.decode(sections.encode([writer, (UNKNOWN, b"?")]))
    (part,) = WHOLE.encode(1)
    inner = sections.decode(part, (JournalSection.PART,))[JournalSection.PART]
    for kind, is_read in ((UNKNOWN, False), (UNKNOWN | OPTIONAL, True)):
        raw = inner + sections.encode_bare([(kind, b"more")])
        body = sections.encode([(JournalSection.PART, raw)])
        if is_read:
            assert SnapshotParts().add(body) == WHOLE
        else:
            with pytest.raises(NewerJournal):
                SnapshotParts().add(body)


def test_an_entry_of_an_unknown_kind_is_refused_unless_all_of_it_is_optional() -> None:
    """It is the sequencer that meets it which says so."""
    basic = Properties(headers={headers.ENTRY: ("S", b"session")})
    replay = Replay(is_partitioned=False, readers=(), fingerprint="boot")
    replay.feed(basic, sections.encode([(UNKNOWN | OPTIONAL, b"?")]))
    for body in (sections.encode([(UNKNOWN, b"?")]), b"\x03newer"):
        with pytest.raises(NewerJournal, match="an entry of kind 'session'"):
            replay.feed(basic, body)


@pytest.mark.parametrize("kind", ["session", "bucket", "", "Text", "two words", "\ufffd", "x" * 33])
@pytest.mark.parametrize("body", [b"", b"\x01older", b"header 5", b"\xff\xfe", b"\x02no sections"])
def test_what_no_bridge_would_write_is_passed_over_and_named(kind: str, body: bytes) -> None:
    """A stranger's message among the entries stops nobody."""
    replay = Replay(is_partitioned=False, readers=(), fingerprint="boot")
    replay.feed(Properties(headers={headers.ENTRY: ("S", kind.encode())}), body)
    assert len(replay.unreadable) == 1


@pytest.mark.parametrize("keep", range(0, 200, 7))
def test_a_snapshot_that_is_cut_short_is_malformed(keep: int) -> None:
    """It is never taken for a smaller one."""
    (part,) = WHOLE.encode(1)
    inner = sections.decode(part, (JournalSection.PART,))[JournalSection.PART]
    body = sections.encode([(JournalSection.PART, inner[: 16 + keep])])
    with pytest.raises(MalformedEntry):
        SnapshotParts().add(body)


identities = st.binary(min_size=1, max_size=1).map(lambda raw: raw * 16)
knowns = st.builds(
    Known,
    number=st.integers(0, 2**63 - 1),
    enqueued_ms=st.none() | st.integers(0, 2**50),
    is_trusted=st.booleans(),
)


@given(
    st.lists(st.tuples(identities, st.integers(0, 2**31), knowns, st.integers(1, 5)), max_size=20)
)
def test_what_is_known_is_read_as_it_was_written(
    runs: list[tuple[bytes, int, Known, int]],
) -> None:
    """Envelopes of one message and of many, wherever their numbers stand; and their copies."""
    known = {}
    for envelope, first, one, count in runs:
        for offset in range(count):
            identity = envelope + (first + offset).to_bytes(4, "big")
            known[identity] = one._replace(number=(one.number + offset) % 2**63)

    found = decode_known(encode_known(known), is_believed=True)
    add_copies(found, encode_copies(known))
    assert found == known
    assert not any(
        each.is_trusted for each in decode_known(encode_known(known), is_believed=False).values()
    )


def test_the_messages_of_an_envelope_are_known_in_one_row() -> None:
    """4,000 arrivals of 100 messages each stay a small snapshot."""
    known = {
        bytes(16) + index.to_bytes(4, "big"): Known(100 + index, 5, False) for index in range(1_000)
    }

    assert len(encode_known(known)) == 41


@given(st.dictionaries(st.integers(0, 2**62), knowns.filter(lambda known: known.enqueued_ms)))
def test_what_was_activated_is_read_as_it_was_written(activated: dict[int, Known]) -> None:
    """Number as scheduled, number, time, trust and copies."""
    found = decode_activated(encode_activated(activated), is_believed=True)
    add_activated_copies(found, encode_activated_copies(activated))
    assert found == activated


def test_cancels_are_read_as_they_were_written() -> None:
    """Identities of envelopes; what is none is malformed."""
    cancels = {bytes([number] * 16) for number in range(5)}
    assert decode_cancelled(encode_cancelled(cancels)) == cancels
    with pytest.raises(MalformedEntry):
        decode_cancelled(b"short")
