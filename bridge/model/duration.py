"""Durations as Service Bus writes them: ISO 8601 text on the outside, whole milliseconds inside.

Also the longest duration, and the times that clients can read.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

MAX_MS = 922_337_203_685_477
""".NET's TimeSpan.MaxValue (2^63 - 1 ticks of 100 ns), cut to milliseconds; means 'for ever'."""

MAX_TEXT = "P10675199DT2H48M5.4775807S"
"""The text of `MAX_MS` as Service Bus itself writes it."""

TIME_MAX_MS = 253_402_300_799_999
""".NET's DateTime.MaxValue, 9999-12-31T23:59:59.999Z: no SDK reads a later time."""

TIME_MIN_MS = -62_135_596_800_000
"""0001-01-01T00:00:00Z, the first time of .NET's DateTime and of Python's datetime (`MINYEAR`): no
SDK reads an earlier time."""

_TICKS_A_MS = 10_000
"""Ticks of .NET: 100 ns."""

_FOREVER_FROM_MS = MAX_MS - 1_000
"""SDKs write the longest duration with different roundings (`...5.477581S`, `...5.477S`)."""

_ISO = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?"
)


def readable_time_ms(utc_ms: int) -> int:
    """Return the nearest time that clients can read."""
    return max(TIME_MIN_MS, min(utc_ms, TIME_MAX_MS))


def instant_text(utc_ms: int) -> str:
    """Return a time (UTC ms) as definitions and descriptions have it: 2026-11-02T09:14:03.120Z."""
    instant = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=readable_time_ms(utc_ms))
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration such as `PT1M` or `P14D`.

    Parts below a millisecond are cut. A duration within a second of the longest duration, or beyond
    it, is the longest duration.

    Raises:
        ValueError: the text is no such duration (years, months and weeks are not accepted).
    """
    match = _ISO.fullmatch(text.strip())
    if match is None or text.strip() in ("P", "PT"):
        raise ValueError(f"{text!r} is not an ISO 8601 duration such as PT30S, PT1M or P14D")
    return total_ms(match)


def total_ms(match: re.Match[str]) -> int:
    """Return the milliseconds of a match: days, hours, minutes, seconds and a fraction."""
    days, hours, minutes, seconds = (
        int(match[unit] or 0) for unit in ("days", "hours", "minutes", "seconds")
    )
    fraction_ms = int((match["fraction"] or "").ljust(3, "0")[:3])
    found_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
    return MAX_MS if is_forever(found_ms) else found_ms


def format_duration(duration_ms: int) -> str:
    """Return the ISO 8601 text of a duration of `duration_ms` milliseconds (0 to `MAX_MS`)."""
    if not 0 <= duration_ms <= MAX_MS:
        raise ValueError(f"{duration_ms} ms is outside 0 to {MAX_MS} ms")
    return MAX_TEXT if duration_ms >= _FOREVER_FROM_MS else format_ticks(duration_ms * _TICKS_A_MS)


def format_ticks(ticks: int) -> str:
    """Return the ISO 8601 text of a span of 100 ns each; .NET writes a minus before it."""
    if ticks < 0:
        return "-" + format_ticks(-ticks)
    seconds, fraction = divmod(ticks, 1000 * _TICKS_A_MS)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    date = f"{days}D" if days else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if fraction:
        time += f"{seconds}.{fraction:07d}".rstrip("0") + "S"
    elif seconds or not (date or time):
        time += f"{seconds}S"
    return "P" + date + ("T" + time if time else "")


def is_forever(duration_ms: int) -> bool:
    """Whether a duration is Service Bus's 'for ever' (in any SDK's rounding)."""
    return duration_ms >= _FOREVER_FROM_MS
