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

TIER_MESSAGE_SIZE_MAX_BYTES = {
    Tier.BASIC: 256 * 1024,
    Tier.STANDARD: 256 * 1024,
    Tier.PREMIUM: 100 * 1024 * 1024,
}
"""The largest message of a tier (Service Bus quotas)."""


def message_size_max_bytes(entity: SendEntity, tier: Tier) -> int:
    """Return the message size limit of a queue or topic, by default the tier's."""
    if entity.max_message_size_kb is not None:
        return entity.max_message_size_kb * 1024
    return TIER_MESSAGE_SIZE_MAX_BYTES[tier]
