"""Messages of REST requests, encoded as AMQP 1.0: what an SDK would have sent.

From there on one path serves both, with one set of checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bridge.model.errors import ArgumentError
from bridge.wire import headers
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.composite import encode_composite
from bridge.wire.amqp10.errors import EncodeError
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.primitives import NULL, encode_binary, encode_list, encode_uint
from bridge.wire.amqp10.scalars import Symbol, Timestamp
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.inward import UINT_MAX
from bridge.wire.mapping.properties import ABSOLUTE_EXPIRY_MAX_MS
from bridge.wire.rest.broker_properties import SenderProperties, parse_json, read_broker_properties
from bridge.wire.rest.header_fields import typed

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"
"""The Content-Type of a batch ("Send Message Batch" of the Service Bus REST reference)."""

_TRUE = b"\x41"


def encode(
    body: bytes,
    given: SenderProperties,
    custom: Mapping[str, Any],
    content_type: str | None,
    now_ms: int,
) -> bytes:
    """Return an AMQP 1.0 message with the body as its data.

    Args:
        custom: the application properties.
        now_ms: the time (UTC ms) from which a TTL beyond 49 days is counted.

    Raises:
        ArgumentError: the content type is not ASCII, or a property cannot be encoded.
    """
    properties = MessageProperties(
        message_id=given.message_id,
        to=given.to,
        subject=given.label,
        reply_to=given.reply_to,
        correlation_id=given.correlation_id,
        group_id=given.session_id,
        reply_to_group_id=given.reply_to_session_id,
    )
    if content_type:
        if not content_type.isascii():
            raise ArgumentError("The Content-Type is not ASCII.")
        properties.content_type = Symbol(content_type)
    header = b""
    ttl_ms = given.time_to_live_ms
    if ttl_ms is not None:
        short_ms = min(ttl_ms, UINT_MAX)
        header = part.descriptor(part.HEADER) + encode_list([_TRUE, NULL, encode_uint(short_ms)])
        if ttl_ms > UINT_MAX:
            properties.creation_time = Timestamp(now_ms)
            until_ms = min(now_ms + ttl_ms, ABSOLUTE_EXPIRY_MAX_MS)
            properties.absolute_expiry_time = Timestamp(until_ms)
    annotations: dict[Any, Any] = {}
    if given.partition_key is not None:
        annotations[Symbol(headers.PARTITION_KEY)] = given.partition_key
    if given.via_partition_key is not None:
        annotations[Symbol(headers.VIA_PARTITION_KEY)] = given.via_partition_key
    if given.scheduled_ms is not None:
        annotations[Symbol(headers.SCHEDULED_ENQUEUE_TIME)] = Timestamp(given.scheduled_ms)
    try:
        return b"".join(
            (
                header,
                _map(part.MESSAGE_ANNOTATIONS, annotations),
                encode_composite(properties),
                _map(part.APPLICATION_PROPERTIES, dict(custom)),
                part.descriptor(part.DATA) + encode_binary(body),
            )
        )
    except (EncodeError, UnicodeEncodeError) as error:
        raise ArgumentError(f"A property of the message cannot be stored: {error}.") from None


def _map(code: int, pairs: dict[Any, Any]) -> bytes:
    return part.descriptor(code) + writing.write_map(pairs) if pairs else b""


def batch_of(body: bytes) -> list[Any]:
    """Return the messages of a batch, still in JSON's types.

    Raises:
        ArgumentError: the body is no JSON array with messages.
    """
    said = parse_json(body, "The batch")
    if not isinstance(said, list) or not said:
        raise ArgumentError("The batch is no JSON array with messages.")
    return said


def encode_each(said: list[Any], now_ms: int) -> Iterator[bytes]:
    """Yield each message of a batch, encoded: `Body`, `BrokerProperties`, `UserProperties`.

    Raises:
        ArgumentError, ArgumentOutOfRange: a message or a property of it has the wrong form.
    """
    for message in said:
        if not isinstance(message, dict):
            raise ArgumentError("A message of the batch is no JSON object.")
        body = message.get("Body")
        if not isinstance(body, str | None):
            raise ArgumentError("The Body of a message of the batch is no text.")
        custom = message.get("UserProperties") or {}
        if not isinstance(custom, dict) or any(isinstance(v, dict | list) for v in custom.values()):
            raise ArgumentError(
                "UserProperties is no JSON object with texts, numbers and booleans."
            )
        given = read_broker_properties(message.get("BrokerProperties"))
        try:
            content = (body or "").encode()
        except UnicodeEncodeError:
            raise ArgumentError("A Body of the batch is no Unicode text.") from None
        properties = {name: typed(value) for name, value in custom.items()}
        yield encode(content, given, properties, None, now_ms)
