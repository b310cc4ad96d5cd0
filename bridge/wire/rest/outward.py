"""A received message as the answer of a REST request: its head, and its body."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from bridge.wire import headers
from bridge.wire.amqp10 import types
from bridge.wire.amqp10.message import decode_message
from bridge.wire.basic import Table, integer_in, shown_text, text_in
from bridge.wire.mapping import sections as part
from bridge.wire.record import Record
from bridge.wire.rest.broker_properties import seconds_of
from bridge.wire.rest.header_fields import http_date, json_text, written_name, written_value

CONTENT_TYPE_DEFAULT = "application/atom+xml;type=entry;charset=utf-8"
"""Of a message without a content type, and of answers without a message, as in the reference."""

_STATES = ("Active", "Deferred", "Scheduled")

_PRINTABLE = re.compile(r"[\x20-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message for a client.

    Attributes:
        broker_properties: the value of the field BrokerProperties.
        custom: a field for each custom property.
    """

    content_type: str
    broker_properties: str
    custom: tuple[tuple[str, str], ...]
    body: bytes


def show(
    record: Record,
    raw: bytes,
    *,
    sequence_number: int,
    enqueued_ms: int,
    delivery_count: int,
    time_to_live_ms: int | None,
    state: int,
    lock_token: UUID | None,
    locked_until_ms: int | None,
) -> Shown:
    """Return a message in the form of the REST API.

    Args:
        record: the message as stored in RabbitMQ.
        raw: the same message as an SDK gets it.
        delivery_count: failed deliveries before this one. The REST API counts from 1 ("Receive and
            Delete Message": `"DeliveryCount":1` at the first delivery).

    Raises:
        DecodeError: the message is none that a client can read.
    """
    message = decode_message(raw)
    given = message.properties
    table: Table = record.properties.headers or {}
    scheduled = table.get(headers.SCHEDULED_ENQUEUE_TIME)
    scheduled_ms = None
    if scheduled is not None and isinstance(scheduled[1], int):
        scheduled_ms = scheduled[1] * 1000 if scheduled[0] == "T" else scheduled[1]
    said = {
        "CorrelationId": _text(given.correlation_id),
        "DeadLetterSource": text_in(table, headers.DEAD_LETTER_SOURCE),
        "DeliveryCount": delivery_count + 1,
        "EnqueuedSequenceNumber": integer_in(table, headers.ENQUEUED_SEQUENCE_NUMBER) or 0,
        "EnqueuedTimeUtc": http_date(enqueued_ms),
        "Label": _text(given.subject),
        "LockToken": None if lock_token is None else str(lock_token),
        "LockedUntilUtc": None if locked_until_ms is None else http_date(locked_until_ms),
        "MessageId": _text(given.message_id),
        "PartitionKey": text_in(table, headers.PARTITION_KEY),
        "ReplyTo": _text(given.reply_to),
        "ReplyToSessionId": _text(given.reply_to_group_id),
        "ScheduledEnqueueTimeUtc": None if scheduled_ms is None else http_date(scheduled_ms),
        "SequenceNumber": sequence_number,
        "SessionId": _text(given.group_id),
        "State": _STATES[state],
        "TimeToLive": seconds_of(time_to_live_ms),
        "To": _text(given.to),
    }
    content_type = given.content_type
    is_printable = content_type is not None and _PRINTABLE.fullmatch(content_type) is not None
    return Shown(
        content_type=str(content_type) if is_printable else CONTENT_TYPE_DEFAULT,
        broker_properties=json.dumps(
            {name: value for name, value in said.items() if value is not None},
            separators=(",", ":"),
        ),
        custom=tuple(
            (written_name(str(name)), written_value(value))
            for name, value in message.application_properties.items()
        ),
        body=_body(raw),
    )


def _text(value: Any) -> str | None:
    """Return an id as text; SDKs may send a uuid, a number or bytes."""
    if value is None:
        return None
    return shown_text(value) if isinstance(value, bytes) else str(value)


def _body(raw: bytes) -> bytes:
    """Return the data; of another body its text as UTF-8, or its value as JSON."""
    content = []
    for code, _, value_at, _ in part.split_sections(raw).body:
        value, _ = types.read_value(raw, value_at)
        if code == part.DATA or (code == part.AMQP_VALUE and isinstance(value, bytes)):
            content.append(bytes(value))
        elif code == part.AMQP_VALUE and isinstance(value, str):
            content.append(value.encode())
        elif value is not None:
            content.append(json_text(value).encode())
    return b"".join(content)
