"""Properties and annotations of AMQP 1.0: their types, and their places in 0-9-1."""

from __future__ import annotations

from bridge.wire import headers

PROPERTY_NAMES = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)

BASIC_PROPERTIES = {
    "message-id": "message_id",
    "subject": "type",
    "reply-to": "reply_to",
    "correlation-id": "correlation_id",
    "content-type": "content_type",
    "content-encoding": "content_encoding",
}
"""Property of AMQP 1.0 -> basic property of 0-9-1; Azure's Subject (Label) is 0-9-1's type."""

HEADER_PROPERTIES = {
    "user-id": headers.USER_ID,
    "to": headers.TO,
    "absolute-expiry-time": headers.ABSOLUTE_EXPIRY_TIME,
    "creation-time": headers.CREATION_TIME,
    "group-id": headers.SESSION_ID,
    "group-sequence": headers.GROUP_SEQUENCE,
    "reply-to-group-id": headers.REPLY_TO_SESSION_ID,
}
"""Property of AMQP 1.0 -> header, for properties that 0-9-1 lacks."""

_FLAGS, _UINTS, _INTEGERS = b"\x41\x42\x56", b"\x70\x52\x43", b"\x70\x52\x43\x54\x71\x55\x81"
_IDS = b"\xa1\xb1\xa0\xb0\x80\x53\x44\x98"
_TEXTS, _SYMBOLS, _BINARIES = b"\xa1\xb1", b"\xa3\xb3\xa1\xb1", b"\xa0\xb0"

PROPERTY_CODES = (
    _IDS,
    _BINARIES,
    _TEXTS,
    _TEXTS,
    _TEXTS,
    _IDS,
    _SYMBOLS,
    _SYMBOLS,
    b"\x83",
    b"\x83",
    _TEXTS,
    _UINTS,
    _TEXTS,
)
"""The constructors that each property allows beside null; a symbol may come as a string."""

HEADER_CODES = (_FLAGS, b"\x50", _INTEGERS, _FLAGS, _UINTS)
"""The constructors of the header section's fields: durable, priority, ttl, first-acquirer,
delivery-count."""

SENDER_ANNOTATIONS = {
    name.encode(): name
    for name in (
        headers.SCHEDULED_ENQUEUE_TIME,
        headers.PARTITION_KEY,
        headers.VIA_PARTITION_KEY,
    )
}
"""Annotations that a sender may set, and the header of each."""

SERVICE_ANNOTATIONS = frozenset(
    {
        headers.SEQUENCE_NUMBER.encode(),
        headers.ENQUEUED_SEQUENCE_NUMBER.encode(),
        headers.ENQUEUED_TIME.encode(),
        b"x-opt-locked-until",
        b"x-opt-message-state",
        b"x-opt-offset",
        b"x-opt-partition-id",
        headers.DEAD_LETTER_SOURCE.encode(),
        b"x-opt-lock-token",
    }
)
"""Annotations that only the service may set; a client's are removed."""
