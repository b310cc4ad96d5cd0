"""The annotations of an imported message: what it was at its source, in Azure's names and two more.

    x-opt-sequence-number            long: its number
    x-opt-enqueued-time              timestamp
    x-opt-message-state              int: 0 active, 1 deferred, 2 scheduled; 0 where it is missing
    x-opt-enqueue-sequence-number    long: of a subscription's message its number in the topic
    x-opt-deadletter-source          string, of a dead letter that was forwarded
    com.busbridge:subscription       string, at a topic: the name of the subscription that had it
    com.busbridge:dead-letter        boolean: it was in the dead-letter queue

The header's delivery-count is the one that a peek gives.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.model.duration import TIME_MAX_MS, TIME_MIN_MS
from bridge.model.errors import InvalidField
from bridge.model.number import NUMBER_MAX
from bridge.wire import headers
from bridge.wire.amqp10.scalars import Symbol
from bridge.wire.imported import ACTIVE, DEFERRED, SCHEDULED
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.fields import field_of, map_items, textual

SUBSCRIPTION: Final = Symbol("com.busbridge:subscription")
DEAD_LETTER: Final = Symbol("com.busbridge:dead-letter")

_STATE: Final = b"x-opt-message-state"
_LONGS: Final = (0x81, 0x55)
_STRINGS: Final = (0xA1, 0xB1)
_NULL: Final = 0x40
_CODES: Final[dict[bytes, tuple[int, ...]]] = {
    headers.SEQUENCE_NUMBER.encode(): _LONGS,
    headers.ENQUEUED_TIME.encode(): (0x83,),
    _STATE: (0x71, 0x54),
    headers.ENQUEUED_SEQUENCE_NUMBER.encode(): _LONGS,
    headers.DEAD_LETTER_SOURCE.encode(): _STRINGS,
    SUBSCRIPTION.encode(): _STRINGS,
    DEAD_LETTER.encode(): (0x41, 0x42, 0x56),
}
"""Annotation -> the constructors that its value may have, beside null."""

_OWN: Final = frozenset({SUBSCRIPTION.encode(), DEAD_LETTER.encode()})
_STATES: Final = (ACTIVE, DEFERRED, SCHEDULED)


class ImportFacts(NamedTuple):
    """What the annotations and the header of an imported message say.

    Attributes:
        number: its sequence number.
        enqueued_ms: its enqueued time, UTC ms.
        state: `wire.imported.ACTIVE` and so on.
        enqueued_number: its EnqueuedSequenceNumber; 0 for none.
        dead_letter_source: "" for none.
        subscription: the name of its subscription; "" for none.
        is_dead: it was in the dead-letter queue.
        deliveries: its delivery count.
    """

    number: int
    enqueued_ms: int
    state: int
    enqueued_number: int
    dead_letter_source: str
    subscription: str
    is_dead: bool
    deliveries: int


def import_facts(raw: bytes) -> tuple[bytes, ImportFacts]:
    """Return an imported message without the annotations of our own, and what all of them say.

    Args:
        raw: the encoded message.

    Raises:
        MappingError: the bytes are no message.
        InvalidField: an annotation is missing, comes twice, or is not right.
    """
    at = part.annotations_at(raw)
    values: dict[bytes, bytes] = {}
    kept: list[tuple[bytes, bytes]] = []
    items = [] if at is None else map_items(raw, at[1])
    for key, (start, end) in items:
        name = textual(raw, *key) or b""
        codes = _CODES.get(name)
        if name not in _OWN:
            kept.append((raw[key[0] : key[1]], raw[start:end]))
        if codes is None or raw[start] == _NULL:
            continue
        if raw[start] not in codes or name in values:
            raise InvalidField(f"The annotation '{name.decode()}' is not right.")
        values[name] = raw[start:end]
    for needed in (headers.SEQUENCE_NUMBER, headers.ENQUEUED_TIME):
        if needed.encode() not in values:
            raise InvalidField(f"The message has no annotation '{needed}': its link imports.")
    facts = ImportFacts(
        _integer(values, headers.SEQUENCE_NUMBER.encode()),
        _integer(values, headers.ENQUEUED_TIME.encode()),
        _integer(values, _STATE),
        _integer(values, headers.ENQUEUED_SEQUENCE_NUMBER.encode()),
        _text(values, headers.DEAD_LETTER_SOURCE.encode()),
        _text(values, SUBSCRIPTION.encode()),
        values.get(DEAD_LETTER.encode()) in (b"\x41", b"\x56\x01"),
        _deliveries(raw),
    )
    if (
        not 1 <= facts.number <= NUMBER_MAX
        or not TIME_MIN_MS <= facts.enqueued_ms <= TIME_MAX_MS
        or facts.state not in _STATES
        or facts.enqueued_number < 0
        or (facts.is_dead and facts.state == SCHEDULED)
    ):
        raise InvalidField(
            f"The annotations of an imported message are not right: number {facts.number}, "
            f"enqueued at {facts.enqueued_ms} ms, state {facts.state}, "
            f"EnqueuedSequenceNumber {facts.enqueued_number}, dead letter: {facts.is_dead}."
        )
    if at is None or len(kept) == len(items):
        return raw, facts
    return part.with_annotations(raw, at, kept), facts


def _integer(values: dict[bytes, bytes], name: bytes) -> int:
    return int.from_bytes(values.get(name, b"")[1:], "big", signed=True)


def _text(values: dict[bytes, bytes], name: bytes) -> str:
    raw = values.get(name, b"\xa1\x00")
    try:
        return raw[2 if raw[0] == 0xA1 else 5 :].decode()
    except UnicodeDecodeError:
        raise InvalidField(f"The annotation '{name.decode()}' is no UTF-8.") from None


def _deliveries(raw: bytes) -> int:
    """Return the header's delivery-count; 0 without one."""
    found = part.split_sections(raw)
    if part.HEADER not in found.at:
        return 0
    items = found.items(part.HEADER)
    if len(items) < 5:
        return 0
    field = field_of(raw, *items[4])[0]
    count = 0 if field is None else field[1]
    if count is None:
        return 0
    if not isinstance(count, int) or not 0 <= count < 2**32:
        raise InvalidField("The header's delivery-count is not right.")
    return count
