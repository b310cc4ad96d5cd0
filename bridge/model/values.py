"""Readers of raw property values: from the spellings of Azure's tools to model values.

Each function takes a value as JSON or XML has it (XML: always text) and raises `ValueError`, with
the accepted form, for any other value.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bridge.model.duration import parse_duration_ms, total_ms
from bridge.model.entity import EntityStatus, Right, Tier
from bridge.model.name import without_host
from bridge.model.tiers import TIER_MESSAGE_SIZE_KB

_CLOCK = re.compile(
    r"(?:(?P<days>\d+)(?: days?, |\.))?(?P<hours>\d{1,2}):(?P<minutes>\d\d):(?P<seconds>\d\d)"
    r"(?:\.(?P<fraction>\d+))?"
)
"""`10675199.02:48:05.4775807` (.NET's TimeSpan) and `10675199 days, 2:48:05.477581` (az before
2.49, which printed Python's timedelta)."""

Converter = Callable[[object], object]

SETTABLE_STATUSES = tuple(each for each in EntityStatus if each is not EntityStatus.DELETING)
"""Statuses that a definition may have; only the service sets the others."""


def duration_ms(value: object) -> int:
    """Return the milliseconds of a duration: ISO 8601, .NET's or Python's notation."""
    if not isinstance(value, str):
        raise ValueError("a duration is a text such as PT30S, PT1M or P14D")
    match = _CLOCK.fullmatch(value.strip())
    if match is None:
        try:
            return parse_duration_ms(value)
        except ValueError:
            raise ValueError(
                "a duration is ISO 8601 of days and less, such as PT30S, PT1M or P14D"
            ) from None
    return total_ms(match)


def boolean(value: object) -> bool:
    """Return a truth value, also of the texts `true` and `false`."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("it is true or false")


def integer(value: object) -> int:
    """Return a whole number, also of its text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,19}", value.strip()):
        return int(value)
    raise ValueError("it is a whole number")


def int64(value: object) -> int:
    """Return a whole number of 64 bits, also of its text."""
    found = integer(value)
    if not -(2**63) <= found < 2**63:
        raise ValueError("it is a whole number of 64 bits")
    return found


def message_size_kb(value: object) -> int | None:
    """Return the largest message in KiB; `None` up to Standard's size, which cannot be set."""
    size_kb = integer(value)
    return size_kb if size_kb > TIER_MESSAGE_SIZE_KB[Tier.STANDARD] else None


def text(value: object) -> str:
    """Return a text."""
    if isinstance(value, str):
        return value
    raise ValueError("it is a text")


def status(value: object) -> EntityStatus:
    """Return an entity's status; Azure's transient ones are no definitions."""
    for known in SETTABLE_STATUSES:
        if isinstance(value, str) and value.strip().lower() == known.value.lower():
            return known
    raise ValueError("it is one of " + ", ".join(known.value for known in SETTABLE_STATUSES))


def entity_name(value: object) -> str:
    """Return the name of the forwarding target; a live namespace writes its URL."""
    return without_host(text(value).strip())


def rights(values: object) -> frozenset[Right]:
    """Return the rights of a list of their names."""
    found = set()
    for value in values if isinstance(values, list | tuple) else ():
        match = [right for right in Right if right.value.lower() == str(value).strip().lower()]
        if not match:
            raise ValueError("a right is one of " + ", ".join(right.value for right in Right))
        found.add(match[0])
    if not found:
        raise ValueError("it is a list of " + ", ".join(right.value for right in Right))
    return frozenset(found)
