"""Changes of messages: what is not changed keeps its bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from bridge.operations.lines.message_lines import (
    DEATH,
    FIELDS,
    HEADER_FIELDS,
    PROPERTY_FIELDS,
    SERVICE_FIELDS,
    message_of_fields,
)
from bridge.operations.lines.scalar_values import UINT_MAX, Json, ValueRefused
from bridge.operations.lines.section_items import items_of
from bridge.relay.plan.encoded_map import EncodedMap, whole_of
from bridge.remote.message import RemoteMessage
from bridge.wire import headers
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.primitives import (
    NULL,
    encode_list,
    encode_string,
    encode_symbol,
    encode_timestamp,
)
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.names import SERVICE_ANNOTATIONS
from bridge.wire.mapping.properties import ABSOLUTE_EXPIRY_MAX_MS
from bridge.wire.mapping.sections import descriptor
from bridge.wire.relay_source import SOURCE_LOWEST, SOURCE_NUMBER, SOURCE_TIME

_SCHEDULED: Final = headers.SCHEDULED_ENQUEUE_TIME.encode()

_OF_THE_COPY: Final = SERVICE_ANNOTATIONS | {
    _SCHEDULED,
    *(each.encode() for each in (SOURCE_NUMBER, SOURCE_TIME, SOURCE_LOWEST)),
}
"""Annotations that say what a namespace made of its copy: they are none of the message's own."""

_DEATH: Final = frozenset(each.encode() for each in DEATH)

_TTL: Final = list(HEADER_FIELDS).index("time_to_live")
_EXPIRY, _CREATION = (
    list(PROPERTY_FIELDS).index(each) for each in ("absolute_expiry_time", "creation_time")
)

_SETTABLE: Final = (
    frozenset(FIELDS)
    - SERVICE_FIELDS
    - {
        "unread",
        "application_properties",
        "annotations",
        "footer",
        "absolute_expiry_time",
        "creation_time",
        "first_acquirer",
    }
)
"""Fields of a line that are changed one by one."""


@dataclass(frozen=True, slots=True)
class MessageChanges:
    """What is changed in messages that are sent again.

    Attributes:
        fields: fields of a line (docs/message-lines.md) and their values; `None` removes one.
        properties: application properties, likewise.
        keeps_death: whether DeadLetterReason and DeadLetterErrorDescription stay.

    Raises:
        ValueRefused: a field cannot be changed, or a value is none of its type.
    """

    fields: Mapping[str, Json] = field(default_factory=dict)
    properties: Mapping[str, Json] = field(default_factory=dict)
    keeps_death: bool = False

    def __post_init__(self) -> None:
        for name in self.fields:
            if name not in _SETTABLE:
                known = ", ".join(sorted(_SETTABLE))
                raise ValueRefused(f"{name!r} is no field that can be set; there are {known}")
        self._given(0)

    def _given(self, now_ms: int) -> RemoteMessage:
        """Return a message of what is set."""
        fields = {name: value for name, value in self.fields.items() if value is not None}
        properties = {name: value for name, value in self.properties.items() if value is not None}
        return message_of_fields(fields | {"application_properties": properties}, now_ms=now_ms)

    def applied(self, message: RemoteMessage, now_ms: int) -> RemoteMessage:
        """Return a message with the changes; each section without any keeps its bytes.

        Args:
            now_ms: the time, UTC ms.

        Raises:
            ValueRefused: a section of the message has more items than are taken apart.
        """
        given = self._given(now_ms)
        removed = {name for name, value in self.fields.items() if value is None}
        gone = {name.encode() for name, value in self.properties.items() if value is None}
        if "time_to_live" in self.fields:
            message = replace(message, properties=_without_times(message.properties))
            removed.add("time_to_live")
        try:
            return replace(
                message,
                header=_list(part.HEADER, message.header, given.header, HEADER_FIELDS, removed),
                annotations=_map(
                    part.MESSAGE_ANNOTATIONS,
                    message.annotations,
                    given.annotations,
                    {_ANNOTATIONS[name] for name in removed & _ANNOTATIONS.keys()},
                ),
                properties=_list(
                    part.PROPERTIES, message.properties, given.properties, PROPERTY_FIELDS, removed
                ),
                application_properties=_map(
                    part.APPLICATION_PROPERTIES,
                    message.application_properties,
                    given.application_properties,
                    gone,
                ),
                body=given.body if "body" in self.fields else message.body,
            )
        except MappingError as error:
            raise ValueRefused(str(error)) from None


_ANNOTATIONS: Final = {
    "partition_key": headers.PARTITION_KEY.encode(),
    "via_partition_key": headers.VIA_PARTITION_KEY.encode(),
    "scheduled_enqueue_time": _SCHEDULED,
}


def sent_again(
    message: RemoteMessage, now_ms: int, changes: MessageChanges | None = None
) -> RemoteMessage:
    """Return a received message as it is sent again, as a new one.

    It has neither what its namespace made of the copy (number, times, lock, count, source), nor why
    it died. Its time to live begins anew. All else keeps its bytes.

    Args:
        now_ms: the time, UTC ms.

    Raises:
        ValueRefused: it is no message, or cannot be taken apart.
    """
    changes = changes or MessageChanges()
    if message.unread:
        raise ValueRefused("the bytes are no message of AMQP 1.0")
    try:
        annotations = EncodedMap(message.annotations, part.MESSAGE_ANNOTATIONS)
        properties = EncodedMap(message.application_properties, part.APPLICATION_PROPERTIES)
        header = _items(part.HEADER, message.header)
        found = RemoteMessage(
            header=_section(part.HEADER, header[: _TTL + 1]),
            annotations=annotations.changed(drop=_OF_THE_COPY, as_key=encode_symbol),
            properties=_with_new_times(message.properties, header, now_ms),
            application_properties=(
                message.application_properties
                if changes.keeps_death
                else properties.changed(drop=_DEATH, as_key=encode_string)
            ),
            body=message.body,
            footer=message.footer,
        )
    except MappingError as error:
        raise ValueRefused(str(error)) from None
    sent = changes.applied(found, now_ms)
    try:
        _ = sent.property_fields  # by which it is kept in its session's order
    except DecodeError as error:
        raise ValueRefused(str(error)) from None
    return sent


def scheduled(message: RemoteMessage, time_ms: int) -> RemoteMessage:
    """Return a message that is to be enqueued at a time (UTC ms)."""
    annotations = EncodedMap(message.annotations, part.MESSAGE_ANNOTATIONS).changed(
        put={_SCHEDULED: encode_timestamp(time_ms)}, as_key=encode_symbol
    )
    return replace(message, annotations=annotations)


def _items(code: int, section: bytes) -> list[bytes]:
    return [section[start:end] for start, end in items_of(section, code)] if section else []


def _section(code: int, items: list[bytes]) -> bytes:
    """Return a list's section; empty without fields."""
    while items and items[-1] == NULL:
        items.pop()
    return descriptor(code) + encode_list(items) if items else b""


def _with_new_times(section: bytes, header: list[bytes], now_ms: int) -> bytes:
    """Return properties in which creation and expiry are of now, where both are there.

    Senders write them for a time to live beyond the header's 32 bits, and some for each.
    """
    items = _items(part.PROPERTIES, section)
    if len(items) <= _EXPIRY or items[_EXPIRY] == NULL:
        return section
    until_ms = whole_of(items[_EXPIRY])
    since_ms = whole_of(items[_CREATION]) if len(items) > _CREATION else None
    if until_ms is None or since_ms is None:
        items[_EXPIRY] = NULL
        return _section(part.PROPERTIES, items)
    ttl_ms = whole_of(header[_TTL]) if len(header) > _TTL else None
    span_ms = max(0, until_ms - since_ms)
    if ttl_ms is not None and span_ms <= UINT_MAX:
        span_ms = ttl_ms
    items[_CREATION] = encode_timestamp(now_ms)
    items[_EXPIRY] = encode_timestamp(min(now_ms + span_ms, ABSOLUTE_EXPIRY_MAX_MS))
    return _section(part.PROPERTIES, items)


def _without_times(section: bytes) -> bytes:
    items = _items(part.PROPERTIES, section)
    for place in (_EXPIRY, _CREATION):
        if place < len(items):
            items[place] = NULL
    return _section(part.PROPERTIES, items)


def _list(
    code: int, section: bytes, given: bytes, names: Collection[str], removed: Collection[str]
) -> bytes:
    """Return a list's section with the given items put, and others removed."""
    put = _items(code, given)
    places = [at for at, name in enumerate(names) if name in removed]
    if not put and not places:
        return section
    items = _items(code, section)
    items += [NULL] * (len(put) - len(items))
    for at in places:
        if at < len(items):
            items[at] = NULL
    for at, item in enumerate(put):
        if item != NULL:
            items[at] = item
    return _section(code, items)


def _map(code: int, section: bytes, given: bytes, removed: Collection[bytes]) -> bytes:
    """Return a map's section with the given pairs put, and others removed."""
    as_key = encode_string if code == part.APPLICATION_PROPERTIES else encode_symbol
    pairs = EncodedMap(given, code).named if given else {}
    return EncodedMap(section, code).changed(drop=removed, put=pairs, as_key=as_key)
