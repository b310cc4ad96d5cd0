"""Values of rules with the types that they were given in.

A rule shows its values as they were given; what compares them does without the type (`plain`). A
value of a type that its class alone would say is of that class: an `int` is an int where it fits
one, else a long, a `float` a double, a `Decimal` a decimal, a `datetime` a DateTime of whole
microseconds. Every other one is of a subclass, with its type in `kind`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

TICKS_A_MICROSECOND = 10
"""Ticks of .NET's times and spans: 100 ns."""

DATE_TIME, DATE_TIME_OFFSET = "dateTime", "dateTimeOffset"
WHOLE_KINDS = ("byte", "ubyte", "short", "ushort", "uint", "long", "ulong")
TEXT_KINDS = ("uri", "char", "symbol")
"""Types by their names in AMQP, and .NET's Uri."""


_SEVENTH = len("2026-01-01T00:00:00.000000")


class Whole(int):
    """A whole number of another type than an int, or than a long that is beyond an int.

    Attributes:
        kind: one of `WHOLE_KINDS`.
    """

    kind: str

    def __new__(cls, value: int, kind: str) -> Whole:
        """Return a number of a type."""
        made = super().__new__(cls, value)
        made.kind = kind
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Whole) and other.kind != self.kind:
            return False
        return int.__eq__(self, other) is True

    __hash__ = int.__hash__


class Single(float):
    """A float of 32 bits."""

    kind = "float"


class Text(str):
    """A text of another type than a string.

    Attributes:
        kind: one of `TEXT_KINDS`.
    """

    kind: str

    def __new__(cls, value: str, kind: str) -> Text:
        """Return a text of a type."""
        made = super().__new__(cls, value)
        made.kind = kind
        return made


class Moment(datetime):
    """A time with its seventh digit, or a DateTimeOffset.

    Attributes:
        tick: 100 ns beyond the microsecond, 0 to 9.
        kind: `dateTime` or `dateTimeOffset`.
    """

    tick = 0
    kind = DATE_TIME

    @classmethod
    def of(cls, value: datetime, tick: int, kind: str = DATE_TIME) -> datetime:
        """Return a time; one that its class alone would say is a plain `datetime`."""
        if not tick and kind == DATE_TIME:
            return value
        made = cls.combine(value.date(), value.timetz())
        made.tick, made.kind = tick, kind
        return made


class Span(timedelta):
    """A time span with its seventh digit.

    Attributes:
        tick: 100 ns beyond the microsecond, 0 to 9.
    """

    tick = 0

    @classmethod
    def of_ticks(cls, ticks: int) -> timedelta:
        """Return a span of 100 ns each; one of whole microseconds is a plain `timedelta`.

        Raises:
            OverflowError: it is longer than Python's largest span.
        """
        microseconds, tick = divmod(ticks, TICKS_A_MICROSECOND)
        if not tick:
            return timedelta(microseconds=microseconds)
        made = cls(microseconds=microseconds)
        made.tick = tick
        return made


def ticks_of(span: timedelta) -> int:
    """Return a span in 100 ns."""
    tick = span.tick if isinstance(span, Span) else 0
    return span // timedelta(microseconds=1) * TICKS_A_MICROSECOND + tick


def rule_time_text(value: datetime) -> str:
    """Return a time in UTC, to its seventh digit; a time without a zone stays without one."""
    tick = value.tick if isinstance(value, Moment) else 0
    is_zoned = value.tzinfo is not None
    if is_zoned:
        value = value.astimezone(UTC)
    text = value.replace(tzinfo=None).isoformat(timespec="microseconds" if tick else "auto")
    return text + (str(tick) if tick else "") + ("Z" if is_zoned else "")


def exact_text(value: datetime) -> str:
    """Return a time in its own zone, to its seventh digit."""
    tick = value.tick if isinstance(value, Moment) else 0
    text = value.isoformat(timespec="microseconds")
    return f"{text[:_SEVENTH]}{tick}{text[_SEVENTH:]}"


def read_time(text: str) -> datetime:
    """Return the time of a text of ISO 8601, to its seventh digit.

    Raises:
        ValueError: the text is none.
    """
    text = text.strip()
    found = datetime.fromisoformat(text)
    _, point, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return Moment.of(found, int(digits[6]) if point and len(digits) > 6 else 0)


def without_type(value: object) -> object:
    """Return a value in Python's own class."""
    if isinstance(value, Moment):
        return datetime.combine(value.date(), value.timetz())
    if isinstance(value, Span):
        return timedelta(value.days, value.seconds, value.microseconds)
    for subclass, own in ((Whole, int), (Single, float), (Text, str)):
        if isinstance(value, subclass):
            return own(value)
    return value


def plain(value: object) -> object:
    """Return a value as it is compared: in Python's own class, a time without a zone in UTC."""
    value = without_type(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value
