"""Native messages, which RabbitMQ users publish: properties made ready for the sequencer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from bridge.model.duration import readable_time_ms
from bridge.wire import headers
from bridge.wire.basic import (
    FieldValue,
    Properties,
    Table,
    bytes_in,
    decimal_double,
    long,
    shown_string,
    text,
)


@dataclass(frozen=True, slots=True)
class Native:
    """A native message, cleaned.

    Attributes:
        properties: canonical (see `wire.envelope`), without headers that only a broker or the
            sequencer may write.
        ttl_ms: the message's own time to live, or `None`.
        scheduled_ms: time to enqueue the message (UTC ms), or `None` for now.
        key: the key that chooses the partition: session id, else partition key; or `None`.
        message_id: the message's id, or `None`.
    """

    properties: bytes
    ttl_ms: int | None
    scheduled_ms: int | None
    key: bytes | None
    message_id: str | None


def clean(properties: Properties) -> Native:
    """Return a native message with canonical properties; `properties` is changed.

    A priority would break arrival order, and RabbitMQ compares `user_id` with the publishing
    connection's user, which is the bridge's: both are kept as headers. A negative TTL is dropped:
    RabbitMQ closes the channel over it.
    """
    table: Table = properties.headers or {}
    ttl_ms = integer(table.get(headers.TIME_TO_LIVE))
    if ttl_ms is not None and ttl_ms < 0:
        ttl_ms = None
    if ttl_ms is None and properties.expiration and properties.expiration.isdigit():
        ttl_ms = int(properties.expiration)
    scheduled_ms = _scheduled_ms(table.get(headers.SCHEDULED_ENQUEUE_TIME))
    kept = {key: _storable(value) for key, value in table.items() if not headers.is_reserved(key)}
    if scheduled_ms is not None:
        kept[headers.SCHEDULED_ENQUEUE_TIME] = long(scheduled_ms)
    if properties.priority is not None:
        kept[headers.PRIORITY] = ("B", properties.priority)
    if properties.user_id is not None:
        kept[headers.BASIC_USER_ID] = text(properties.user_id)
    key = bytes_in(table, headers.SESSION_ID) or bytes_in(table, headers.PARTITION_KEY)
    if properties.reply_to == headers.DIRECT_REPLY_TO:
        properties.reply_to = None  # RabbitMQ would replace it by an address of the bridge
    elif properties.reply_to is not None:
        # over a reply_to that is no UTF-8 a stream of 4.3 answers with 541
        properties.reply_to = shown_string(properties.reply_to)
    properties.headers = kept or None
    properties.priority = properties.user_id = properties.expiration = None
    properties.cluster_id = None
    properties.delivery_mode = 2
    return Native(properties.encode(), ttl_ms, scheduled_ms, key, properties.message_id)


def _storable(field: FieldValue) -> FieldValue:
    """Return a header in a form that a stream takes.

    A decimal, over which a stream closes the connection with 541, becomes a double
    (docs/rabbitmq-faults.md: stream-decimal). NaN and infinity, which Erlang lacks, become null;
    only a malformed envelope has them.
    """
    letter, value = field
    if letter == "D":
        return "d", decimal_double(field)
    if letter in "fd" and not math.isfinite(cast(float, value)):
        return "V", None
    if letter == "A":
        return "A", [_storable(each) for each in cast("list[FieldValue]", value)]
    if letter == "F":
        return "F", {key: _storable(each) for key, each in cast(Table, value).items()}
    return field


def integer(field: FieldValue | None) -> int | None:
    """Return the value of an integer field, `None` for any other."""
    if field is None or field[0] not in "bBsuIilL":
        return None
    assert isinstance(field[1], int)
    return field[1]


def _scheduled_ms(field: FieldValue | None) -> int | None:
    if field is not None and field[0] == "T":
        assert isinstance(field[1], int)
        return readable_time_ms(field[1] * 1000)
    number = integer(field)
    return None if number is None else readable_time_ms(number)
