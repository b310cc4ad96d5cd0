"""Messages as a client's SDK reads them, on a link and in answers of `$management`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bridge.engine.api import Received
from bridge.wire.amqp10.primitives import encode_binary, encode_map, encode_string
from bridge.wire.amqp10.scalars import Encoded
from bridge.wire.mapping.common_values import ALL, Form
from bridge.wire.mapping.outward import message_from_record, without_body

_MESSAGE = encode_string(b"message")


def message_of(received: Received, form: Form = ALL, *, in_session: bool = False) -> bytes:
    """Return the encoded message for a client, in the form that it reads.

    Args:
        in_session: it is received in a session. Such a message has no lock of its own: it is locked
            until 9999-12-31T23:59:59.9999999, the session's end is told with the session
            (azure-sdk-for-net 48054). SDKs take a message for lost when that time is over.
    """
    record = received.record
    locked_until_ms = received.locked_until_ms
    if in_session and locked_until_ms is not None:
        locked_until_ms = form.latest_ms
    raw = message_from_record(
        record,
        sequence_number=received.sequence_number,
        enqueued_ms=received.enqueued_ms,
        delivery_count=received.delivery_count,
        locked_until_ms=locked_until_ms,
        time_to_live_ms=received.time_to_live_ms,
        dead_letter=received.dead_letter,
        state=received.state,
        lock_token=received.lock_token,
        write_decimal=form.write_decimal,
    )
    return raw if form is ALL else form.of(raw, record.properties.headers or {})


def received_entry(received: Received, form: Form, *, in_session: bool) -> dict[str, Any]:
    """Return a message that was received by its number, with the token of its lock if any."""
    entry: dict[str, Any] = {"message": message_of(received, form, in_session=in_session)}
    if received.lock_token is not None:
        entry["lock-token"] = received.lock_token
    return entry


def peeked_message(received: Received, form: Form, *, in_session: bool, has_body: bool) -> bytes:
    """Return a message of a peek; Azure says of a session's deferred one that it is locked."""
    if in_session and received.is_deferred:
        received = replace(received, locked_until_ms=form.latest_ms)
    message = message_of(received, form)
    return message if has_body else without_body(message, len(received.record.body))


def peeked_entry(received: Received, form: Form, *, in_session: bool, has_body: bool) -> Encoded:
    """Return the entry of a message in the reply to a peek: a map, written here at once."""
    message = peeked_message(received, form, in_session=in_session, has_body=has_body)
    return Encoded(encode_map([(_MESSAGE, encode_binary(message))]))
