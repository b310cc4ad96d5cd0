"""A message on its way: what was received from the source, as it is sent to the target.

Body and footer go byte for byte. Of the properties only ReplyTo, creation and expiry time are
written, of the application properties only our own; every other pair keeps its bytes, and so its
type. Of the annotations those go that the source made for its own copy: number, times, lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Self

from bridge.relay.plan.encoded_map import VALUE_AT, EncodedMap, text_of, whole_of
from bridge.relay.plan.route import Route
from bridge.remote.message import RemoteMessage
from bridge.wire import headers
from bridge.wire.amqp10.primitives import (
    NULL,
    encode_list,
    encode_string,
    encode_symbol,
    encode_timestamp,
    encode_uint,
)
from bridge.wire.mapping.fields import MappingError, compound_items
from bridge.wire.mapping.inward import UINT_MAX
from bridge.wire.mapping.properties import ABSOLUTE_EXPIRY_MAX_MS
from bridge.wire.mapping.sections import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    descriptor,
)
from bridge.wire.relay_source import SOURCE_LOWEST, SOURCE_NUMBER, SOURCE_TIME

SEQUENCE: Final = "repl-sequence"
ENQUEUE_TIME: Final = "repl-enqueue-time"
"""The number and the time at the source, as texts; of each hop one, with `;` between them, as
Azure's replication tasks write them (Azure, message replication task patterns)."""

DELIVERY_COUNT: Final = "repl-delivery-count"
DEAD_LETTER_SOURCE: Final = "repl-dead-letter-source"
"""How often a dead letter was delivered, and the entity in which it died. Its reason and its
description are application properties already."""

MARKER: Final = "x-busbridge-relay"
"""The entities that a message has been through, each as `ID/ENTITY` (`Place.mark`), with `;`
between them. Relays of an earlier version have told the ids of the namespaces alone."""

HOPS_MAX: Final = 16
"""Entities in a marker; one of more has gone in a circle that no file shows."""

WAY_CHARACTERS_MAX: Final = 1_000
"""Of a marker in the description of a dead letter, which is a property of it: the marker came from
anybody, and Service Bus takes descriptions of 4,096 characters (the SDKs refuse longer ones)."""

PROPERTIES_BYTES_MAX: Final = 64 * 1024
"""Properties and application properties of a message at Azure (Service Bus quotas)."""

_NUMBER: Final = headers.SEQUENCE_NUMBER.encode()
_ENQUEUED: Final = headers.ENQUEUED_TIME.encode()
_DIED_IN: Final = headers.DEAD_LETTER_SOURCE.encode()
_SCHEDULED: Final = headers.SCHEDULED_ENQUEUE_TIME.encode()

_DROPPED: Final = frozenset(
    {
        _NUMBER,
        _ENQUEUED,
        _DIED_IN,
        headers.ENQUEUED_SEQUENCE_NUMBER.encode(),
        b"x-opt-locked-until",
        b"x-opt-lock-token",
        b"x-opt-message-state",
        *(each.encode() for each in (SOURCE_NUMBER, SOURCE_TIME, SOURCE_LOWEST)),
    }
)
"""Annotations that say what the source made of its copy, and what a relay alone may say of one."""

_DROPPED_WHEN_DUE: Final = _DROPPED | {_SCHEDULED}

_SOURCES_OWN: Final = frozenset({_NUMBER, _ENQUEUED, _DIED_IN, _SCHEDULED})
_EARLIER: Final = frozenset({MARKER.encode(), SEQUENCE.encode(), ENQUEUE_TIME.encode()})
"""What is read of the annotations, and of the application properties."""

_TTL, _COUNT = 2, 4
_REPLY_TO, _EXPIRY, _CREATION = 4, 8, 9
"""Places in the header, and in the properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFacts:
    """What the message's way says about it.

    Attributes:
        source_mark, target_mark: what the marker calls the entities.
        heeds_id: a marker with the id of the target's namespace alone means the target, as no route
            begins at another entity of it. Elsewhere it may have been another one.
        is_dead_letter: the source is a dead-letter queue: what is in it does not expire.
        is_subscription: the source is a subscription itself: a message that has been at the target
            before is there already. A dead letter of one is not: nobody there knows that it died.
        reply_to: addresses in ReplyTo -> what they become.
    """

    source_mark: str
    target_mark: str
    heeds_id: bool = False
    is_dead_letter: bool = False
    is_subscription: bool = False
    reply_to: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, route: Route, routes: Iterable[Route] = ()) -> Self:
        """Return the facts of a route, which is one of these."""
        target = route.target
        id_ = target.side.id.lower()
        marks = {each.source.mark.lower() for each in routes if each.source.side.id.lower() == id_}
        return cls(
            source_mark=route.source.mark,
            target_mark=target.mark,
            heeds_id=marks == {target.mark.lower()},
            is_dead_letter=route.source.is_dead_letter,
            is_subscription=route.source.is_subscription and not route.source.is_dead_letter,
            reply_to=route.reply_to,
        )

    def is_target_in(self, marks: Iterable[str]) -> bool:
        """Whether a message with these marks has been at the target; ids and names have no case."""
        target = self.target_mark.lower()
        known = {target, target.partition("/")[0]} if self.heeds_id else {target}
        return any(each.lower() in known for each in marks)


@dataclass(frozen=True, slots=True)
class Relayed:
    """The message that is to be sent.

    Attributes:
        left_out: names of our pairs that it does not have, as it would be too large with them.
    """

    message: RemoteMessage
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expired:
    """The message's time is over: it is given back, and the source does what it does with such."""

    expired_ms: int


@dataclass(frozen=True, slots=True)
class Returned:
    """The message has been at the target before: it is completed, and not sent."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """The message cannot be sent as it is, now or later: the route's `on-refused` applies."""

    reason: str
    description: str


def relayed(
    message: RemoteMessage,
    facts: RouteFacts,
    now_ms: int,
    *,
    message_bytes_max: int = 0,
    properties_bytes_max: int = PROPERTIES_BYTES_MAX,
) -> Relayed | Expired | Returned | Unfit:
    """Return what becomes of a message that was received from the source.

    Args:
        now_ms: the time, UTC ms.
        message_bytes_max: the largest message that the target takes; 0 if it has not said.
        properties_bytes_max: the most that properties and application properties may take.
    """
    if message.unread:
        return Unfit("NoMessage", "The bytes are no message of AMQP 1.0.")
    try:
        known = _Known(message)
    except MappingError as error:
        return Unfit("NoMessage", f"The message cannot be read: {error}.")
    if facts.is_subscription and facts.is_target_in(known.marks):
        return Returned()
    if len(known.marks) >= HOPS_MAX:
        way = ";".join(known.marks)[:WAY_CHARACTERS_MAX]
        return Unfit("RelayCircle", f"The message has been through {len(known.marks)}: {way}.")
    expires_ms = None if facts.is_dead_letter else known.expires_ms(now_ms)
    if expires_ms is not None and expires_ms <= now_ms:
        return Expired(expires_ms)
    remainder_ms = None if expires_ms is None else expires_ms - now_ms
    sections = (
        _header(known, remainder_ms),
        b"",  # delivery annotations
        _annotations(known, now_ms),
        _properties(message.properties, known, facts, now_ms, remainder_ms),
    )

    def sent(application_properties: bytes) -> RemoteMessage:
        return RemoteMessage(*sections, application_properties, message.body, message.footer)

    pairs = _own_pairs(known, facts)
    for names in (tuple(pairs), (MARKER,), ()):
        put = {name.encode(): encode_string(pairs[name].encode()) for name in names}
        found = sent(known.application_properties.changed(put=put, as_key=encode_string))
        size_bytes = len(found.properties) + len(found.application_properties)
        is_small = size_bytes <= properties_bytes_max
        if is_small and (not message_bytes_max or found.size_bytes <= message_bytes_max):
            break
    return Relayed(found, tuple(name for name in pairs if name not in names))


class _Known:
    """What is read of a message.

    Attributes:
        header, properties: the encoded items of the lists.
        number, enqueued_ms: at the source.
        until_ms, since_ms: absolute expiry and creation time.
        marks: the entities that it has been through.

    Raises:
        MappingError: a section is not what it is to be.
    """

    __slots__ = (
        "annotations",
        "application_properties",
        "enqueued_ms",
        "header",
        "marks",
        "number",
        "own",
        "properties",
        "since_ms",
        "sources",
        "until_ms",
    )

    def __init__(self, message: RemoteMessage) -> None:
        self.header = _items(message.header)
        self.properties = _items(message.properties)
        self.annotations = EncodedMap(message.annotations, MESSAGE_ANNOTATIONS)
        self.application_properties = EncodedMap(
            message.application_properties, APPLICATION_PROPERTIES
        )
        self.sources = self.annotations.values(_SOURCES_OWN)
        self.own = self.application_properties.values(_EARLIER)
        self.number = whole_of(self.sources.get(_NUMBER))
        self.enqueued_ms = whole_of(self.sources.get(_ENQUEUED))
        self.until_ms = whole_of(_item(self.properties, _EXPIRY))
        self.since_ms = whole_of(_item(self.properties, _CREATION))
        marker = text_of(self.own.get(MARKER.encode()))
        self.marks = [each for each in marker.split(";") if each] if marker else []

    def expires_ms(self, now_ms: int) -> int | None:
        """Return when the message expires; `None` for never.

        The TTL is the header's, or the difference of the two times where 32 bits are too few.
        """
        ttl_ms = whole_of(_item(self.header, _TTL))
        if self.until_ms is not None and self.since_ms is not None:
            span_ms = self.until_ms - self.since_ms
            ttl_ms = span_ms if span_ms > UINT_MAX else ttl_ms
        if ttl_ms is None:
            return None
        return (now_ms if self.enqueued_ms is None else self.enqueued_ms) + ttl_ms


def _items(section: bytes) -> list[bytes]:
    spans = compound_items(section, VALUE_AT) if section else ()
    return [section[start:end] for start, end in spans]


def _item(items: list[bytes], place: int) -> bytes | None:
    return items[place] if place < len(items) else None


def _header(known: _Known, remainder_ms: int | None) -> bytes:
    """Return a new header: durable and priority as they were, and what remains of the TTL."""
    fields = known.header[:_TTL]
    if remainder_ms is not None:
        fields += [NULL] * (_TTL - len(fields))
        fields.append(encode_uint(min(remainder_ms, UINT_MAX)))
    while fields and fields[-1] == NULL:
        fields.pop()
    return descriptor(HEADER) + encode_list(fields) if fields else b""


def _annotations(known: _Known, now_ms: int) -> bytes:
    scheduled_ms = whole_of(known.sources.get(_SCHEDULED))
    is_due = scheduled_ms is not None and scheduled_ms <= now_ms
    dropped = _DROPPED_WHEN_DUE if is_due else _DROPPED
    return known.annotations.changed(drop=dropped, as_key=encode_symbol)


def _properties(
    section: bytes, known: _Known, facts: RouteFacts, now_ms: int, remainder_ms: int | None
) -> bytes:
    """Return the properties with other times and another ReplyTo, where these are to be written.

    Who reckons the TTL of the two times gets what remains of it.
    """
    has_times = known.until_ms is not None and known.since_ms is not None
    put: dict[int, bytes] = {}
    if remainder_ms is not None and (has_times or remainder_ms > UINT_MAX):
        end_ms = min(now_ms + remainder_ms, ABSOLUTE_EXPIRY_MAX_MS)
        put = {_EXPIRY: encode_timestamp(end_ms), _CREATION: encode_timestamp(now_ms)}
    elif facts.is_dead_letter and known.until_ms is not None:
        put = {_EXPIRY: NULL}
    if facts.reply_to:
        address = facts.reply_to.get(text_of(_item(known.properties, _REPLY_TO)))
        if address is not None:
            put[_REPLY_TO] = encode_string(address.encode())
    if not put:
        return section
    items = known.properties + [NULL] * (max(put) + 1 - len(known.properties))
    for place, value in put.items():
        items[place] = value
    return descriptor(PROPERTIES) + encode_list(items)


def _own_pairs(known: _Known, facts: RouteFacts) -> dict[str, str]:
    """Return our own application properties."""

    def appended(name: str, value: str) -> str:
        earlier = text_of(known.own.get(name.encode()))
        return f"{earlier};{value}" if earlier else value

    found = {}
    if facts.is_dead_letter:
        found[DELIVERY_COUNT] = str(whole_of(_item(known.header, _COUNT)) or 0)
        if source := text_of(known.sources.get(_DIED_IN)):
            found[DEAD_LETTER_SOURCE] = source
    if known.number is not None:
        found[SEQUENCE] = appended(SEQUENCE, str(known.number))
    if known.enqueued_ms is not None:
        found[ENQUEUE_TIME] = appended(ENQUEUE_TIME, _time_text(known.enqueued_ms))
    found[MARKER] = ";".join((*known.marks, facts.source_mark))
    return found


def _time_text(value_ms: int) -> str:
    """Return a time as ISO 8601 has it, in UTC with milliseconds."""
    try:
        found = datetime.fromtimestamp(value_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(value_ms)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
