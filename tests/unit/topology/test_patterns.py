"""Patterns that list names: exact, short, and read again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.topology import patterns
from tests.unit.topology.entities import paths

NAMES = st.sets(paths().map(str.lower) | st.sampled_from(["a", "a.b", "axb", "$amq.x", "a/b"]))


@given(NAMES, st.text("abc.$/", max_size=6), st.integers(420, 1_024))
def test_patterns_take_exactly_their_names(names: set[str], other: str, bytes_max: int) -> None:
    """Each name is taken by one pattern, no other text by any, and none is too long."""
    found = patterns.patterns(sorted(names), bytes_max)
    assert all(len(pattern) <= bytes_max for pattern in found)
    for name in names | {other, other + "x"} | {name + "x" for name in names}:
        taking = sum(re.search(pattern, name) is not None for pattern in found)
        assert taking == (1 if name in names else 0), (name, found)


@given(NAMES)
def test_packed_patterns_take_exactly_their_names(names: set[str]) -> None:
    """A pattern in which common beginnings are written once means the same."""
    packed = patterns._packed(sorted(names))
    for name in names | {name[:-1] for name in names} | {name + "a" for name in names} | {""}:
        assert (re.search(packed, name) is not None) == (name in names or (not name and not names))


def test_a_short_list_is_written_so_that_people_can_read_it() -> None:
    """Names are listed in full where they fit, with regular-expression characters escaped."""
    assert patterns.patterns(["orders", "a.b"]) == [r"^(?:a\.b|orders)$"]
    assert patterns.patterns(["orders"]) == ["^orders$"]
    assert patterns.patterns([]) == []


def test_names_of_one_family_share_few_policies() -> None:
    """1,000 names of 6 families need 6 patterns of 1,024 bytes."""
    found = [
        patterns.patterns([f"{family}-{i:04d}" for i in range(family_size)])
        for family, family_size in zip("abcdef", (167, 167, 167, 167, 166, 166), strict=True)
    ]
    assert [len(each) for each in found] == [1] * 6


def test_a_name_longer_than_a_pattern_is_an_error() -> None:
    """Nothing is left out silently."""
    with pytest.raises(ValueError, match="fit"):
        patterns.patterns(["x" * 100], 50)


@given(NAMES, st.integers(420, 1_024))
def test_a_list_is_read_again_as_it_was_written(names: set[str], bytes_max: int) -> None:
    """Packed or not, all names come back and no others."""
    found = patterns.patterns(sorted(names), bytes_max)
    assert {name for each in found for name in patterns.names_in(each) or ()} == names
    packed = patterns._packed(sorted(names))
    assert patterns.names_in(packed) == (names or {""})


@given(st.text("ab^$.[]|()?*+{}\\:-", max_size=12))
def test_what_is_read_as_a_list_matches_its_names_and_no_others(pattern: str) -> None:
    """Anybody may have written the pattern; what has another meaning than a list is no list."""
    names = patterns.names_in(pattern)
    if names is None:
        return
    for name in names | {"", "a", "b", "ab", "ba", "aa", "bb", pattern, pattern[1:-1]}:
        assert (re.search(pattern, name) is not None) == (name in names)


def test_a_short_pattern_that_lists_more_names_than_memory_holds_is_no_list() -> None:
    """It is read in no time."""
    assert patterns.names_in("^" + "(?:a|b)" * 100 + "$") is None
    assert patterns.names_in("^ord.*$") is None
    assert patterns.names_in("orders") is None
