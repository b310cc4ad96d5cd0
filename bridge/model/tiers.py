"""Limits of a message's life and size: by its entity, and by the pricing tier."""

from __future__ import annotations

from bridge.model.duration import MAX_MS
from bridge.model.entity import DAY_MS, SendEntity, Tier


def effective_time_to_live_ms(message_ttl_ms: int | None, *caps_ms: int) -> int:
    """Return the time a message lives: its own TTL, silently cut to the entities' defaults.

    "The default TTL ... is also used as an upper limit for the time to live value of messages"
    (Azure, message expiration). `caps_ms` are the defaults of the queue, or of topic and
    subscription.
    """
    return min((message_ttl_ms if message_ttl_ms is not None else MAX_MS, *caps_ms, MAX_MS))


TIER_TIME_TO_LIVE_MAX_MS = {
    Tier.BASIC: 14 * DAY_MS,
    Tier.STANDARD: MAX_MS,
    Tier.PREMIUM: MAX_MS,
}
"""The longest TTL of a tier ("The default ... for Basic tier is 14 days, which is the maximum")."""

TIER_MESSAGE_SIZE_KB = {Tier.BASIC: 256, Tier.STANDARD: 256, Tier.PREMIUM: 1_024}
"""MaxMessageSizeInKilobytes of an entity that does not set it (Azure's Python live tests of the
three tiers)."""

PREMIUM_MESSAGE_SIZE_KB = range(1_024, 102_401)
"""MaxMessageSizeInKilobytes that an entity of Premium may set (Azure's Python live tests)."""

CAPACITIES_MB = (1_024, 2_048, 3_072, 4_096, 5_120)
PREMIUM_CAPACITIES_MB = (10_240, 20_480, 40_960, 81_920)
"""MaxSizeInMegabytes that administration takes in each tier, and in Premium besides."""

ENVELOPE_BYTES_MAX = 262_144
"""Bytes that the envelope of one message adds to it at most: the properties, which leave the body,
and the envelope's own fields."""


def message_size_max_bytes(entity: SendEntity, tier: Tier) -> int:
    """Return the message size limit of a queue or topic, by default the tier's."""
    size_kb = entity.max_message_size_kb
    if size_kb is None:
        size_kb = TIER_MESSAGE_SIZE_KB[tier]
    return min(size_kb, PREMIUM_MESSAGE_SIZE_KB[-1]) * 1024


def sendable_bytes_max(entity: SendEntity, tier: Tier, rabbitmq_bytes_max: int) -> int:
    """Return the size of the largest message that a sender may send to a queue or topic.

    It is the entity's limit, or less where RabbitMQ would not take such a message's envelope.

    Args:
        rabbitmq_bytes_max: RabbitMQ's `max_message_size`.
    """
    room_bytes = max(rabbitmq_bytes_max - ENVELOPE_BYTES_MAX, rabbitmq_bytes_max // 2)
    return min(message_size_max_bytes(entity, tier), room_bytes)
