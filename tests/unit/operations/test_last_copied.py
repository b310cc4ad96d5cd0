"""What a run has copied, by number: whatever comes to the source later is none of it."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.number import compose, partition_of
from bridge.operations.migration.last_copied import (
    STATES_PART,
    CopiedStates,
    LastCopied,
    ReturnedEntity,
    last_copied,
    no_way_back,
    not_copied,
    states_in_parts,
)

numbers = st.builds(compose, st.integers(0, 3), st.integers(1, 50))


@given(copied=st.sets(numbers), later=st.integers(0, 3), by=st.integers(1, 5))
def test_what_was_copied_is_known_and_what_comes_later_is_not(
    copied: set[int], later: int, by: int
) -> None:
    """In each partition numbers rise; a partition without a copy has none."""
    found = LastCopied.of("q", copied)
    assert all(map(found.has, copied))
    last = max((each for each in copied if partition_of(each) == later), default=compose(later, 0))
    assert not found.has(last + by)
    assert LastCopied.decode(found.encode()) == found


def test_a_queue_and_its_dead_letters_are_one() -> None:
    """They share their numbers."""
    assert last_copied([("q", [3, 9]), ("q", [12]), ("t", [])]) == [
        LastCopied(path="q", lasts={0: 12}),
        LastCopied(path="t", lasts={}),
    ]
    assert not LastCopied(path="t", lasts={}).has(1)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"path": "q", "lasts": {"a": 1}}', b"\xff"])
def test_what_is_no_record_says_nothing(raw: bytes) -> None:
    """Somebody may have sent it there."""
    assert LastCopied.decode(raw) is None
    assert ReturnedEntity.decode(raw) is None


def test_a_note_that_an_entity_has_come_back_is_neither_numbers_nor_states() -> None:
    """Each kind of note is told from the others."""
    raw = ReturnedEntity("q").encode()
    assert ReturnedEntity.decode(raw) == ReturnedEntity("q")
    assert LastCopied.decode(raw) is None
    assert CopiedStates.decode(raw) is None
    assert ReturnedEntity.decode(LastCopied(path="q", lasts={}).encode()) is None


def test_what_no_run_has_copied_to_the_target_as_it_is_now_is_named() -> None:
    """One without a record, one that is gone, and those made anew behind the copy."""
    recorded = {each: (LastCopied(path=each, lasts={}), 60_000) for each in ("a", "b", "c", "e")}
    created = {"a": "1970-01-01T00:01:00Z", "b": "1970-01-01T00:01:01Z", "d": "", "e": ""}
    made_at_source = {"a": "1970-01-01T00:01:00Z", "e": "1970-01-01T00:01:10Z"}
    assert not_copied("abcde", recorded, created, made_at_source) == [
        "b: the target's was made behind its copy.",
        "c: it is not at the target.",
        "d: no run that has come to its end has copied it.",
        "e: the source's was made behind its copy.",
    ]


def test_a_state_of_a_session_is_known_by_what_it_was_and_whose() -> None:
    """Parts of thousands fit into messages; case does not tell sessions apart."""
    states = [("q", f"s{n}", sha256(b"paid").digest()) for n in range(2 * STATES_PART + 1)]
    (copied,) = last_copied([("q", [])], states)
    assert copied.has_state("S7", b"paid")
    assert not copied.has_state("s7", b"shipped")
    assert not copied.has_state("another", b"paid")
    parts = list(states_in_parts(copied))
    assert [len(each.digests) for each in parts] == [STATES_PART, STATES_PART, 1]
    assert frozenset().union(*(each.digests for each in parts)) == copied.states
    raw = [each.encode() for each in parts]
    assert [CopiedStates.decode(each) for each in raw] == parts
    assert max(map(len, raw)) < 40_000
    assert LastCopied.decode(raw[0]) is None
    assert CopiedStates.decode(copied.encode()) is None


def test_an_entity_without_states_has_none_that_were_copied() -> None:
    """So whatever state its source has was set later."""
    assert not LastCopied(path="q", lasts={0: 9}).has_state("s", b"paid")


def test_copies_with_new_numbers_are_no_way_back() -> None:
    """They are told by their numbers; it is written down, and read as it was."""
    new = last_copied([("a", [3])], is_renumbered=True)[0]
    kept = last_copied([("b", [3])])[0]
    for each in (new, kept):
        assert LastCopied.decode(each.encode()) == each
    recorded = {"a": (new, 0), "b": (kept, 0)}
    (text,) = no_way_back(["a", "b", "c"], recorded)
    assert text.startswith("a: its copies have new numbers")
