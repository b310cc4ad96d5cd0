"""What a client is shown of a message beyond what its sender wrote."""

from __future__ import annotations

from uuid import UUID

import pytest
from azure.servicebus._pyamqp._decode import decode_payload

from bridge.engine.api import Received
from bridge.gateway.links.messages import (
    message_of,
    peeked_entry,
    peeked_message,
    received_entry,
)
from bridge.wire.amqp10.writing import encode
from bridge.wire.basic import Properties
from bridge.wire.mapping.common_values import ALL, GO, PYTHON, Form
from bridge.wire.record import Record

UNTIL_MS = 1_700_000_000_000
LAST_MS = 253_402_300_799_999
EVERY_FORM = pytest.mark.parametrize(
    ("form", "last_ms"), [(ALL, LAST_MS + 1), (GO, LAST_MS + 1), (PYTHON, LAST_MS)]
)


def received(*, until_ms: int | None = None, is_deferred: bool = False) -> Received:
    """A message, locked until then."""
    return Received(
        record=Record(Properties(delivery_mode=2), b"body"),
        sequence_number=1,
        enqueued_ms=UNTIL_MS,
        delivery_count=0,
        lock_token=None if until_ms is None else UUID(int=1),
        locked_until_ms=until_ms,
        is_deferred=is_deferred,
    )


def locked_until_ms(raw: bytes) -> int | None:
    """What a message's annotation says, or `None` when it has none."""
    annotations = decode_payload(memoryview(raw)).message_annotations or {}
    found = annotations.get(b"x-opt-locked-until")
    return None if found is None else int(found)


@EVERY_FORM
def test_a_message_of_a_session_has_no_lock_of_its_own(form: Form, last_ms: int) -> None:
    """It says the year 9999, as far as the client can read it; others say when their lock ends."""
    locked = received(until_ms=UNTIL_MS)
    assert locked_until_ms(message_of(locked, form, in_session=True)) == last_ms
    assert locked_until_ms(message_of(locked, form)) == UNTIL_MS
    assert locked_until_ms(message_of(received(), form, in_session=True)) is None


@EVERY_FORM
def test_a_deferred_message_of_a_session_too_received_or_peeked(form: Form, last_ms: int) -> None:
    """Not one that is received and deleted, nor one that is peeked and not deferred."""
    locked, gone = received(until_ms=UNTIL_MS, is_deferred=True), received(is_deferred=True)
    assert locked_until_ms(received_entry(locked, form, in_session=True)["message"]) == last_ms
    assert locked_until_ms(received_entry(locked, form, in_session=False)["message"]) == UNTIL_MS
    assert locked_until_ms(received_entry(gone, form, in_session=True)["message"]) is None
    for has_body in (True, False):
        for each, in_session, expected in (
            (gone, True, last_ms),
            (gone, False, None),
            (received(), True, None),
        ):
            message = peeked_message(each, form, in_session=in_session, has_body=has_body)
            assert locked_until_ms(message) == expected
            entry = peeked_entry(each, form, in_session=in_session, has_body=has_body)
            assert encode([entry]) == encode([{"message": message}])
