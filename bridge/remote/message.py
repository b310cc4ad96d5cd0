"""Messages of a remote namespace: sections as bytes, read when somebody asks.

A section is kept with its descriptor, exactly as its server or its author wrote its value; so a
message that is sent on says what it said, whatever types are in it. The views give values with
AMQP's types (`bridge.wire.amqp10.scalars`): `Long(5)` and `Int(5)` are equal, and not the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Self

from bridge.wire import headers
from bridge.wire.amqp10 import types, writing
from bridge.wire.amqp10.composite import decode_composite, encode_composite
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import Symbol, Timestamp, Ubyte, Uint
from bridge.wire.mapping import sections
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.sections import descriptor, split_sections

State = Literal["active", "deferred", "scheduled"]
"""x-opt-message-state of a message that was peeked."""

BodyKind = Literal["data", "value", "sequence", "none"]

STATES: Final[tuple[State, ...]] = ("active", "deferred", "scheduled")
"""The states of a message by the values of the annotation x-opt-message-state."""

_STATES: Final[dict[int, State]] = dict(enumerate(STATES))

_ABSENT: Final = object()

_VALUE_AT: Final = 3
"""Where the value of a section begins, behind its short descriptor."""

_HEADER_FIELDS: Final = 5
_TTL, _DELIVERY_COUNT = 2, 4

_TIMES: Final = frozenset({headers.SCHEDULED_ENQUEUE_TIME})
"""Annotations that are timestamps when they are given as plain numbers."""


@dataclass(frozen=True)
class RemoteMessage:
    """A message; each section is its encoded bytes, empty if the message has none.

    Attributes:
        header: durable, priority, ttl, first-acquirer, delivery-count.
        delivery_annotations: of this delivery alone.
        annotations: message annotations: Service Bus's `x-opt-...`.
        properties: message id, subject, session id (group id) and others.
        application_properties: what filters read.
        body: all body sections, one after the other.
        footer: rarely there.
        unread: the bytes of a message that is none: it has no sections then. A receiver gives such
            a message out, so that it can be settled, and is written down as it came.
    """

    header: bytes = b""
    delivery_annotations: bytes = b""
    annotations: bytes = b""
    properties: bytes = b""
    application_properties: bytes = b""
    body: bytes = b""
    footer: bytes = b""
    unread: bytes = b""

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Return the message that is encoded in `raw`.

        Raises:
            DecodeError: the bytes are no message.
        """
        try:
            found = split_sections(raw)
        except MappingError as error:
            raise DecodeError(f"the bytes are no message: {error}") from None
        return cls(
            found.section(sections.HEADER),
            found.section(sections.DELIVERY_ANNOTATIONS),
            found.section(sections.MESSAGE_ANNOTATIONS),
            found.section(sections.PROPERTIES),
            found.section(sections.APPLICATION_PROPERTIES),
            found.body_sections(),
            found.section(sections.FOOTER),
        )

    @classmethod
    def of(
        cls,
        *,
        data: bytes | Sequence[bytes] | None = None,
        value: Any = _ABSENT,
        sequence: Sequence[Sequence[Any]] | None = None,
        properties: MessageProperties | None = None,
        application_properties: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        ttl_ms: int | None = None,
        durable: bool | None = None,
        priority: int | None = None,
    ) -> Self:
        """Return a message of typed parts; of `data`, `value` and `sequence` one at most is given.

        Args:
            data: the body as binary, in one section or several; without a body, one empty section.
            value: the body as one value of any AMQP type, `None` too.
            sequence: the body as lists of values.
            properties: `message_id`, `subject`, `group_id` (the session id) ...
            application_properties: values as plain Python or AMQP types; `int` is a long.
            annotations: `x-opt-scheduled-enqueue-time` (milliseconds), `x-opt-partition-key` ...
            ttl_ms: TimeToLive; RabbitMQ and AMQP know no longer one than 2^32 - 1 ms.

        Raises:
            EncodeError: a value has no AMQP 1.0 form.
            ValueError: more than one body.
        """
        return cls(
            header=_header(durable, priority, ttl_ms),
            annotations=_map_section(sections.MESSAGE_ANNOTATIONS, _symbols(annotations)),
            properties=b"" if properties is None else encode_composite(properties),
            application_properties=_map_section(
                sections.APPLICATION_PROPERTIES, application_properties
            ),
            body=_body(data, value, sequence),
        )

    def encode(self) -> bytes:
        """Return the message's bytes: its sections in the order of the specification."""
        return b"".join(
            (
                self.unread,
                self.header,
                self.delivery_annotations,
                self.annotations,
                self.properties,
                self.application_properties,
                self.body,
                self.footer,
            )
        )

    @property
    def size_bytes(self) -> int:
        """The size of the encoded message."""
        return len(self.encode())

    # -- views

    @cached_property
    def header_fields(self) -> tuple[Any, ...]:
        """The five fields of the header, `None` where the message has none."""
        fields = list(_value_of(self.header) or ())
        return tuple((fields + [None] * _HEADER_FIELDS)[:_HEADER_FIELDS])

    @cached_property
    def property_fields(self) -> MessageProperties:
        """The properties, by name."""
        if not self.properties:
            return MessageProperties()
        found, _ = decode_composite(self.properties)
        assert isinstance(found, MessageProperties)
        return found

    @cached_property
    def application_property_values(self) -> dict[str, Any]:
        """The application properties."""
        return _value_of(self.application_properties) or {}

    @cached_property
    def annotation_values(self) -> dict[Any, Any]:
        """The message annotations."""
        return _value_of(self.annotations) or {}

    @cached_property
    def delivery_annotation_values(self) -> dict[Any, Any]:
        """The delivery annotations."""
        return _value_of(self.delivery_annotations) or {}

    @cached_property
    def footer_values(self) -> dict[Any, Any]:
        """The footer."""
        return _value_of(self.footer) or {}

    @property
    def body_kind(self) -> BodyKind:
        """Which kind of sections the body has."""
        kinds: dict[int, BodyKind] = {
            sections.DATA: "data",
            sections.AMQP_VALUE: "value",
            sections.AMQP_SEQUENCE: "sequence",
        }
        return kinds[self.body[2]] if self.body else "none"

    @cached_property
    def body_values(self) -> list[Any]:
        """The value of each body section: binaries, lists, or one value."""
        found, at = [], 0
        while at < len(self.body):
            value, at = types.decode(self.body, at + _VALUE_AT)
            found.append(value)
        return found

    @property
    def data(self) -> bytes:
        """The binaries of all Data sections, joined; empty for another kind of body."""
        return b"".join(self.body_values) if self.body_kind == "data" else b""

    # -- properties

    @property
    def message_id(self) -> Any:
        """MessageId: a string, or a ulong, uuid or binary; `None` if there is none."""
        return self.property_fields.message_id

    @property
    def session_id(self) -> str | None:
        """SessionId, which AMQP calls group-id."""
        return self.property_fields.group_id

    @property
    def ttl_ms(self) -> int | None:
        """TimeToLive in the header, from when it was enqueued; `None` for no end of its own."""
        found: int | None = self.header_fields[_TTL]
        return found

    @property
    def delivery_count(self) -> int:
        """How often the message was delivered and not settled before, as the header says."""
        found: int | None = self.header_fields[_DELIVERY_COUNT]
        return found or 0

    # -- annotations of the service's

    @property
    def sequence_number(self) -> int | None:
        """SequenceNumber: of the entity it was received from; `None` for one that is to be sent."""
        return self.annotation_values.get(headers.SEQUENCE_NUMBER)

    @property
    def enqueued_sequence_number(self) -> int | None:
        """EnqueuedSequenceNumber: where a message was sent to that has been forwarded since."""
        return self.annotation_values.get(headers.ENQUEUED_SEQUENCE_NUMBER)

    @property
    def enqueued_time_ms(self) -> int | None:
        """EnqueuedTimeUtc, in milliseconds since 1970."""
        return self.annotation_values.get(headers.ENQUEUED_TIME)

    @property
    def scheduled_enqueue_time_ms(self) -> int | None:
        """ScheduledEnqueueTimeUtc, in milliseconds since 1970."""
        return self.annotation_values.get(headers.SCHEDULED_ENQUEUE_TIME)

    @property
    def locked_until_ms(self) -> int | None:
        """LockedUntilUtc, in milliseconds since 1970, when the message was delivered."""
        return self.annotation_values.get("x-opt-locked-until")

    @property
    def partition_key(self) -> str | None:
        """PartitionKey."""
        return self.annotation_values.get(headers.PARTITION_KEY)

    @property
    def state(self) -> State:
        """State of a message that was peeked; that of any other is active."""
        return _STATES.get(self.annotation_values.get("x-opt-message-state") or 0, "active")

    @property
    def dead_letter_source(self) -> str | None:
        """DeadLetterSource: the entity in which a forwarded dead letter died."""
        return self.annotation_values.get(headers.DEAD_LETTER_SOURCE)

    @property
    def dead_letter_reason(self) -> Any:
        """DeadLetterReason, an application property."""
        return self.application_property_values.get(headers.DEAD_LETTER_REASON)

    @property
    def dead_letter_error_description(self) -> Any:
        """DeadLetterErrorDescription, an application property."""
        return self.application_property_values.get(headers.DEAD_LETTER_ERROR_DESCRIPTION)


def _value_of(section: bytes) -> Any:
    return types.decode(section, _VALUE_AT)[0] if section else None


def _header(durable: bool | None, priority: int | None, ttl_ms: int | None) -> bytes:
    fields = [
        durable,
        None if priority is None else Ubyte(priority),
        None if ttl_ms is None else Uint(ttl_ms),
    ]
    while fields and fields[-1] is None:
        fields.pop()
    return descriptor(sections.HEADER) + writing.encode(fields) if fields else b""


def _symbols(values: Mapping[str, Any] | None) -> dict[Any, Any]:
    return {
        Symbol(name): Timestamp(each) if name in _TIMES and type(each) is int else each
        for name, each in (values or {}).items()
    }


def _map_section(code: int, values: Mapping[Any, Any] | None) -> bytes:
    return descriptor(code) + writing.write_map(dict(values)) if values else b""


def _body(
    data: bytes | Sequence[bytes] | None, value: Any, sequence: Sequence[Sequence[Any]] | None
) -> bytes:
    given = [each for each in (data, sequence) if each is not None]
    if len(given) + (value is not _ABSENT) > 1:
        raise ValueError("A message has one kind of body: data, value or sequence.")
    if value is not _ABSENT:
        return descriptor(sections.AMQP_VALUE) + writing.encode(value)
    if sequence is not None:
        lists = (writing.encode(list(each)) for each in sequence)
        return b"".join(descriptor(sections.AMQP_SEQUENCE) + each for each in lists)
    parts = (data,) if isinstance(data, bytes) else data or (b"",)
    return b"".join(descriptor(sections.DATA) + writing.encode(each) for each in parts)
