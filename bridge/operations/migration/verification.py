"""Messages of two sides beside each other, by number: what is missing, and what differs.

Pages of both sides go in, in the order of their numbers; no more than a page of each is kept.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from bridge.operations.migration.state_counts import CopiedState, state_of
from bridge.remote.message import RemoteMessage
from bridge.wire import headers
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.composite import encode_composite
from bridge.wire.amqp10.errors import DecodeError, EncodeError

Side = Literal["source", "target"]

SIDES: Final[tuple[Side, ...]] = ("source", "target")

MESSAGE_PARTS: Final = (
    "state",
    "body",
    "properties",
    "application_properties",
    "header",
    "annotations",
    "enqueued_time",
    "delivery_count",
)
"""What is compared of two messages of one number."""

_APART: Final = frozenset(
    {
        headers.SEQUENCE_NUMBER,
        headers.ENQUEUED_TIME,
        "x-opt-locked-until",
        "x-opt-lock-token",
        "x-opt-message-state",
    }
)
"""Annotations that are compared as parts of their own, or are of one delivery alone."""

_DIGEST_BYTES: Final = 16


class OutOfOrder(Exception):
    """A side shows a number behind a higher one: messages of one number cannot be found then."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A message's number, its state, and a digest of each of its parts.

    Values count, not their encoding: the same string in a longer form is the same.
    """

    number: int
    state: CopiedState
    digests: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class MessageDifference:
    """A number of which the sides differ.

    Attributes:
        is_at: the sides that have a message of this number.
        parts: which parts differ, where both have one.
    """

    number: int
    is_at: tuple[Side, ...]
    parts: tuple[str, ...] = ()


def fingerprint(message: RemoteMessage, *, is_dead: bool) -> Fingerprint:
    """Return what is compared of a message.

    A message that cannot be read counts by its bytes.

    Args:
        is_dead: it is in the dead-letter queue.
    """
    number = 0
    with suppress(DecodeError):
        number = message.sequence_number or 0
    digests = {name: _digest(raw) for name, raw in compared_values(message).items()}
    return Fingerprint(number, state_of(message, is_dead=is_dead), digests)


def compared_values(message: RemoteMessage) -> dict[str, bytes]:
    """Return the parts of a message that are compared, but for its state, always in one order.

    Of a message that cannot be read they are its bytes.
    """
    try:
        return _values(message)
    except (DecodeError, EncodeError):
        return {"body": message.encode()}


def _values(message: RemoteMessage) -> dict[str, bytes]:
    """Return the parts of a message, each in one form for equal values."""
    durable, priority, ttl_ms, *_ = message.header_fields
    annotations = {
        name: value for name, value in message.annotation_values.items() if name not in _APART
    }
    body = writing.encode([message.body_kind, message.body_values, message.unread])
    return {
        "body": body + _map(message.footer_values),
        "properties": encode_composite(message.property_fields),
        "application_properties": _map(message.application_property_values),
        "header": writing.encode([durable or None, priority, ttl_ms]),
        "annotations": _map(annotations),
        "enqueued_time": writing.encode([message.enqueued_time_ms]),
        "delivery_count": writing.encode([message.delivery_count]),
    }


def _map(values: Mapping[Any, Any]) -> bytes:
    """Return a map's bytes; the order of its keys does not matter."""
    return b"".join(sorted(writing.encode([key, value]) for key, value in values.items()))


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES).digest()


@dataclass(slots=True)
class _Read:
    """What was read of a side and not compared yet."""

    waiting: deque[Fingerprint] = field(default_factory=deque)
    last: int = -1
    is_over: bool = False


class MessageComparison:
    """Compares the messages of an entity on two sides.

    Args:
        left_out: parts that are not compared.

    Attributes:
        counts: the messages of each side, by state.
        differing: how many numbers differ.
    """

    def __init__(self, left_out: Sequence[str] = ()) -> None:
        self._parts = tuple(each for each in MESSAGE_PARTS if each not in left_out)
        self._sides: dict[Side, _Read] = {each: _Read() for each in SIDES}
        self.counts: dict[Side, Counter[CopiedState]] = {each: Counter() for each in SIDES}
        self.differing = 0

    @property
    def wants(self) -> Side | None:
        """The side whose next page is needed; `None` when both are over."""
        for side, read in self._sides.items():
            if not read.waiting and not read.is_over:
                return side
        return None

    def add(self, side: Side, page: Sequence[Fingerprint]) -> Iterator[MessageDifference]:
        """Yield the differences that a side's next page shows; an empty page is the side's end.

        Raises:
            OutOfOrder: a number is not above those of the page before.
        """
        read = self._sides[side]
        for each in sorted(page, key=lambda found: found.number):
            if each.number <= read.last:
                raise OutOfOrder(f"the {side} shows number {each.number} behind {read.last}")
            read.last = each.number
            read.waiting.append(each)
            self.counts[side][each.state] += 1
        read.is_over = read.is_over or not page
        for found in self._compared():
            self.differing += 1
            yield found

    def _compared(self) -> Iterator[MessageDifference]:
        source, target = (self._sides[each] for each in SIDES)
        while (source.waiting or source.is_over) and (target.waiting or target.is_over):
            if not source.waiting and not target.waiting:
                return
            if not target.waiting or (
                source.waiting and source.waiting[0].number < target.waiting[0].number
            ):
                yield MessageDifference(source.waiting.popleft().number, ("source",))
            elif not source.waiting or target.waiting[0].number < source.waiting[0].number:
                yield MessageDifference(target.waiting.popleft().number, ("target",))
            else:
                ours, theirs = source.waiting.popleft(), target.waiting.popleft()
                if parts := self._differing(ours, theirs):
                    yield MessageDifference(ours.number, SIDES, parts)

    def _differing(self, ours: Fingerprint, theirs: Fingerprint) -> tuple[str, ...]:
        found = []
        for part in self._parts:
            if part == "state":
                is_same = ours.state == theirs.state
            else:
                is_same = ours.digests.get(part) == theirs.digests.get(part)
            found += [] if is_same else [part]
        return tuple(found)
