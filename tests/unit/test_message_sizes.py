"""How large a sent message may be: whatever a link allows, RabbitMQ takes its envelope."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.gateway.links.sending import outgoing
from bridge.machine.inbox.arrival import PROPERTIES_BYTES_MAX
from bridge.message.envelopes import encode, encode_forwarded
from bridge.model.entity import Queue, Tier
from bridge.model.tiers import (
    ENVELOPE_BYTES_MAX,
    PREMIUM_MESSAGE_SIZE_KB,
    message_size_max_bytes,
    sendable_bytes_max,
)
from bridge.wire import envelope
from bridge.wire.amqp10.message import AmqpMessage, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.envelope import Item, Operation
from bridge.wire.mapping.fields import MappingError
from bridge.wire.rest import inward
from bridge.wire.rest.broker_properties import SenderProperties

TEXTS = st.text(max_size=100)
VALUES = st.one_of(
    TEXTS, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.none(), st.binary(max_size=500)
)
BODIES = st.one_of(st.binary(max_size=4_000), st.lists(VALUES, max_size=50), TEXTS, VALUES)


def test_an_item_adds_no_more_than_its_envelope_may() -> None:
    """The largest properties, key, and all fields of one item."""
    item = Item(
        bytes(PROPERTIES_BYTES_MAX),
        b"",
        ttl_ms=1,
        scheduled_ms=1,
        key=bytes(envelope.KEY_BYTES_MAX),
        digest=bytes(envelope.DIGEST_BYTES),
        source=bytes(envelope.SOURCE_BYTES),
    )
    body = envelope.encode(Operation.SEND, bytes(envelope.IDENTITY_BYTES), [item])

    assert len(body) <= ENVELOPE_BYTES_MAX


@given(
    body=BODIES,
    properties=st.dictionaries(TEXTS, VALUES, max_size=40),
    subject=st.none() | TEXTS,
    spare_bytes=st.integers(0, 3),
)
def test_what_may_be_sent_fits_into_one_message_of_rabbitmq(
    body: Any, properties: dict[str, Any], subject: str | None, spare_bytes: int
) -> None:
    """Sent, scheduled or forwarded, whatever its sections: the limit counts the envelope."""
    if isinstance(body, bytes):
        raw = inward.encode(
            body, SenderProperties(message_id="1", label=subject), properties, None, 0
        )
    else:
        known = MessageProperties(message_id="1", subject=subject)
        raw = encode_message(AmqpMessage(known, properties, body))
    rabbitmq_bytes_max = len(raw) + ENVELOPE_BYTES_MAX + spare_bytes
    entity = Queue(name="q", max_message_size_kb=1_024, requires_duplicate_detection=True)
    assert len(raw) <= sendable_bytes_max(entity, Tier.PREMIUM, rabbitmq_bytes_max)
    try:
        sent = outgoing(raw)
    except MappingError:
        return
    identity = bytes(envelope.IDENTITY_BYTES)
    for operation in (Operation.SEND, Operation.SCHEDULE):
        assert len(encode(operation, entity, [sent], identity)) <= rabbitmq_bytes_max
    source = bytes(envelope.SOURCE_BYTES)
    forwarded = encode_forwarded(entity, sent, identity, source, {})
    assert len(forwarded) <= rabbitmq_bytes_max


@given(
    size_kb=st.none() | st.integers(1, 200_000),
    tier=st.sampled_from(Tier),
    rabbitmq_bytes_max=st.integers(1, 600_000_000),
)
def test_no_limit_is_above_azure_s_or_rabbitmq_s(
    size_kb: int | None, tier: Tier, rabbitmq_bytes_max: int
) -> None:
    """Premium's largest is 102,400 KB, whatever a file says; half of a tiny RabbitMQ's is left."""
    entity = Queue(name="q", max_message_size_kb=size_kb)
    limit_bytes = sendable_bytes_max(entity, tier, rabbitmq_bytes_max)

    assert limit_bytes <= message_size_max_bytes(entity, tier)
    assert limit_bytes <= PREMIUM_MESSAGE_SIZE_KB[-1] * 1024
    assert rabbitmq_bytes_max // 2 >= limit_bytes or (
        limit_bytes <= rabbitmq_bytes_max - ENVELOPE_BYTES_MAX
    )


def test_a_tier_s_default() -> None:
    """Azure: 256 KB, and 1,024 KB in Premium."""
    sizes = {tier: message_size_max_bytes(Queue(name="q"), tier) // 1024 for tier in Tier}

    assert sizes == {Tier.BASIC: 256, Tier.STANDARD: 256, Tier.PREMIUM: 1_024}
