"""Patterns of policies: lists of names, exact and short.

A pattern is PCRE, as Erlang's `re` reads it. `patterns` writes lists of names, and `names_in` reads
such a list again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from os.path import commonprefix

from bridge.topology.capabilities import PATTERN_BYTES_MAX

NAMES_MAX = 10_000
"""The most names that `names_in` reads: a short pattern can list more names than memory holds."""

_SPECIAL = frozenset("\\^$.[]|()?*+{}")
_UNKNOWN = frozenset("^$.*+{}")
"""Special characters that no list of names has outside brackets, but as escaped ones."""


class _NoList(Exception):
    """The pattern is no list of names."""


def escape(name: str) -> str:
    """Return a pattern (PCRE, as Erlang's `re` reads it) that matches exactly `name`."""
    return "".join("\\" + char if char in _SPECIAL else char for char in name)


def patterns(
    names: Sequence[str], bytes_max: int = PATTERN_BYTES_MAX, names_max: int = NAMES_MAX
) -> list[str]:
    """Return few anchored patterns that match exactly `names`.

    Args:
        bytes_max: the most bytes of a pattern.
        names_max: the most names in a pattern.

    Raises:
        ValueError: a single name is longer than a pattern may be.
    """
    left = sorted(set(names))
    found = []
    while left:
        count = _longest_run(left[:names_max], bytes_max)
        if not count:
            raise ValueError(f"The name {left[0]!r} does not fit into {bytes_max} bytes.")
        found.append(pattern_of(left[:count], bytes_max))
        left = left[count:]
    return found


def pattern_of(names: Sequence[str], bytes_max: int = PATTERN_BYTES_MAX) -> str:
    """Return the pattern of sorted names: listed in full, or packed when that is too long."""
    listed = _listed(names)
    return listed if len(listed) <= bytes_max else _packed(names)


def fits(names: Sequence[str], bytes_max: int = PATTERN_BYTES_MAX) -> bool:
    """Whether a pattern of sorted names has no more than `bytes_max` bytes."""
    return len(pattern_of(names, bytes_max)) <= bytes_max


@lru_cache(maxsize=4_096)
def packed_bytes(pattern: str) -> int:
    """Return the bytes that a list takes when it is packed."""
    return len(_packed(sorted(names_in(pattern) or ())))


@lru_cache(maxsize=4_096)
def names_in(pattern: str) -> frozenset[str] | None:
    """Return the names that a pattern of `patterns` lists; None for any other pattern."""
    if not (pattern.startswith("^") and pattern.endswith("$")):
        return None
    try:
        found, end = _read_branches(pattern, 1)
    except (_NoList, IndexError):
        return None
    return frozenset(found) if end == len(pattern) - 1 else None


def _read_branches(pattern: str, at: int) -> tuple[list[str], int]:
    """Read alternatives up to `)` or the last character; return their texts, and where they end."""
    texts: list[str] = []
    while True:
        found, at = _read_sequence(pattern, at)
        texts += found
        if len(texts) > NAMES_MAX:
            raise _NoList
        if pattern[at] != "|":
            return texts, at
        at += 1


def _read_sequence(pattern: str, at: int) -> tuple[list[str], int]:
    texts = [""]
    while at < len(pattern) - 1 and pattern[at] not in "|)":
        units, at = _read_unit(pattern, at)
        if pattern[at] == "?":
            units, at = [*units, ""], at + 1
        if len(texts) * len(units) > NAMES_MAX:
            raise _NoList
        texts = [text + unit for text in texts for unit in units]
    return texts, at


def _read_unit(pattern: str, at: int) -> tuple[list[str], int]:
    """Read one character, characters in brackets, or a group."""
    if pattern.startswith("(?:", at):
        units, end = _read_branches(pattern, at + 3)
        if pattern[end] != ")":
            raise _NoList
        return units, end + 1
    if pattern[at] == "[":
        return _read_brackets(pattern, at + 1)
    if pattern[at] == "\\" and pattern[at + 1] in _SPECIAL:
        return [pattern[at + 1]], at + 2
    if pattern[at] in _UNKNOWN or pattern[at] in "\\(?":
        raise _NoList
    return [pattern[at]], at + 1


def _read_brackets(pattern: str, at: int) -> tuple[list[str], int]:
    units: list[str] = []
    while pattern[at] != "]":
        if pattern[at] in "^-[":
            raise _NoList
        if pattern[at] == "\\":
            at += 1
        units.append(pattern[at])
        at += 1
    return units, at + 1


def _longest_run(names: Sequence[str], bytes_max: int) -> int:
    """Return how many of the first names fit into one pattern."""
    low, high = 0, 1
    while high <= len(names) and fits(names[:high], bytes_max):
        low, high = high, high * 2
    high = min(high, len(names) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(names[:middle], bytes_max):
            low = middle
        else:
            high = middle
    return low


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"^{escape(names[0])}$"
    return "^(?:" + "|".join(map(escape, names)) + ")$"


def _packed(names: Sequence[str]) -> str:
    """Return one pattern that writes common prefixes once; `names` are sorted."""
    return "^" + _branches([name for name in names if name], "" in names) + "$"


def _branches(names: Sequence[str], may_end: bool) -> str:
    if not names:
        return ""
    common = commonprefix(names)  # noqa: RUF071 - of characters, not of paths
    if common and not may_end:
        rest = [name[len(common) :] for name in names]
        return escape(common) + _branches([r for r in rest if r], "" in rest)
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[name[0]].append(name)
    endings = [first for first, group in groups.items() if group == [first]]
    alternatives = [_branches(g, False) for first, g in groups.items() if first not in endings]
    if endings:
        alternatives.insert(0, _one_of(endings))
    if len(alternatives) == 1 and not may_end:
        return alternatives[0]
    is_one_unit = len(alternatives) == 1 and len(groups) == len(endings)
    group_text = alternatives[0] if is_one_unit else "(?:" + "|".join(alternatives) + ")"
    return group_text + ("?" if may_end else "")


def _one_of(chars: Sequence[str]) -> str:
    if len(chars) == 1:
        return escape(chars[0])
    body = "".join("\\" + char if char in "\\]^-[" else char for char in chars)
    return f"[{body}]"
