"""A message of the library is stored as the Azure SDK's is, property for property."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage as AzureMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from bridge.client import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage
from bridge.client.exceptions import MessageSizeExceededError
from bridge.client.messages import encoded
from bridge.message.received import Received
from bridge.wire import headers
from bridge.wire.amqp10.types import read_value
from bridge.wire.mapping.inward import record_from_message
from bridge.wire.mapping.sections import split_sections
from bridge.wire.record import Record

WHOLE = {
    "message_id": "id",
    "subject": "subject",
    "content_type": "text/plain",
    "correlation_id": "c" * 300,
    "to": "to",
    "reply_to": "reply",
    "reply_to_session_id": "replies",
    "session_id": "session",
    "partition_key": "session",
    "scheduled_enqueue_time_utc": datetime(2030, 1, 2, 3, 4, 5, 678_000, UTC),
    "application_properties": {
        "text": "t",
        "whole": -7,
        "part": 1.5,
        "yes": True,
        "none": None,
        "time": datetime(2030, 1, 2, 3, 4, 5, 678_000, UTC),
        "bytes": b"as text",
        "price": Decimal("79.90"),
    },
}


def record_of_azure(body: str | bytes, **given: Any) -> Record:
    """What the gateway stores of the SDK's message."""
    message = PyamqpTransport.to_outgoing_amqp_message(AzureMessage(body, **given).raw_amqp_message)
    raw = bytes(encode_payload(bytearray(), message))
    return record_from_message(raw, new_message_id="new").record


def readable(record: Record) -> tuple[Any, ...]:
    """A record; of sections that are kept as they came, the values with their types."""
    table = dict(record.properties.headers or {})
    raw = table.pop(headers.SECTIONS, ("x", b""))[1]
    assert isinstance(raw, bytes)
    found = split_sections(raw)
    exact = {}
    for code, (_, at, _) in found.at.items():
        items = read_value(raw, at)[0]
        pairs = items.items() if isinstance(items, dict) else enumerate(items)
        exact[code] = [(key, type(value), value) for key, value in pairs if value is not None]
    return replace(record.properties, headers=table), exact, record.body


@pytest.mark.parametrize(
    "given",
    [{"message_id": "id"}, WHOLE, *({"message_id": "id", key: WHOLE[key]} for key in WHOLE)],
    ids=lambda given: "+".join(given),
)
def test_both_are_stored_alike(given: dict[str, Any]) -> None:
    """The same properties, headers with their types, and body."""
    ours = record_from_message(encoded(ServiceBusMessage("body", **given)), new_message_id="new")
    copied = {**given, "application_properties": dict(given.get("application_properties") or {})}
    assert readable(ours.record) == readable(record_of_azure("body", **copied))


def test_a_time_to_live_is_stored_alike() -> None:
    """But for the second in which each was made."""
    given = {"message_id": "id", "time_to_live": timedelta(days=40)}
    ours = record_from_message(encoded(ServiceBusMessage("body", **given)), new_message_id="new")
    table, other = ours.record.properties.headers or {}, record_of_azure("body", **given)
    theirs = other.properties.headers or {}
    assert table["x-opt-time-to-live"] == theirs["x-opt-time-to-live"]
    assert table.keys() == theirs.keys()


def test_what_arrives_can_be_sent_again() -> None:
    """A received message reads as it was sent, and is sent as it reads."""
    record = record_from_message(encoded(ServiceBusMessage("body", **WHOLE)), new_message_id="n")
    got = ServiceBusReceivedMessage(
        Received(record=record.record, sequence_number=3, enqueued_ms=1_000, delivery_count=1)
    )
    names = set(WHOLE) - {"application_properties"}
    assert {name: getattr(got, name) for name in names} == {name: WHOLE[name] for name in names}
    assert (got.application_properties or {})[b"price"] == WHOLE["application_properties"]["price"]
    got.subject = "another"
    again = record_from_message(encoded(got), new_message_id="n").record
    assert (again.body, again.properties.type) == (b"body", "another")
    with pytest.raises(AttributeError, match="surprise"):
        got.surprise  # noqa: B018


def test_what_cannot_be_sent_is_refused() -> None:
    """With the SDK's errors."""
    with pytest.raises(TypeError, match="body"):
        ServiceBusMessage(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="surprise"):
        ServiceBusMessage("x", surprise=1)
    with pytest.raises(ValueError, match="session_id"):
        ServiceBusMessage("x", session_id="s" * 129)
    with pytest.raises(ValueError, match="partition_key"):
        ServiceBusMessage("x", session_id="s", partition_key="t")
    with pytest.raises(TypeError, match="encoded"):
        encoded(ServiceBusMessage("x", application_properties={"n": object()}))
    with pytest.raises(TypeError, match="96 bits with a scale of 0 to 28"):
        encoded(ServiceBusMessage("x", application_properties={"n": Decimal("1E+40")}))
    with pytest.raises(TypeError, match="int"):
        encoded(5)  # type: ignore[arg-type]


def test_a_batch_is_bounded() -> None:
    """A message that does not fit leaves the batch as it was."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=500)
    batch.add_message(ServiceBusMessage("x" * 100))
    size = batch.size_in_bytes
    with pytest.raises(MessageSizeExceededError):
        batch.add_message({"body": "x" * 500})
    assert (len(batch), batch.size_in_bytes) == (1, size)
