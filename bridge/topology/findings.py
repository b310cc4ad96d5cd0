"""Findings of the compiler: properties of Service Bus that the target RabbitMQ does not provide.

A finding names the entity and the property. Its grade is `by the bridge` when the bridge provides
the property itself, `approximate` when users see a difference, and `lost` when it is missing.
"""

from __future__ import annotations

from bridge.model import entity as model
from bridge.model.duration import format_duration, is_forever
from bridge.model.tiers import ENVELOPE_BYTES_MAX, TIER_MESSAGE_SIZE_KB
from bridge.topology.capabilities import NEWEST_KNOWN, OLDEST_SERVED, TTL_MAX_MS, Capabilities
from bridge.topology.resources import Finding

BY_THE_BRIDGE = "by the bridge"
APPROXIMATE = "approximate"
LOST = "lost"


def namespace_findings(capabilities: Capabilities) -> tuple[Finding, ...]:
    """Return the findings that concern all entities of a bridge on this RabbitMQ."""
    found = []
    if capabilities.version > NEWEST_KNOWN:
        found.append(
            Finding(
                entity="",
                property="version",
                grade=APPROXIMATE,
                message=f"{capabilities} is newer than 4.3, the newest that was measured; "
                "it is treated like that.",
            )
        )
    if capabilities.version < OLDEST_SERVED:
        found.append(
            Finding(
                entity="",
                property="version",
                grade=LOST,
                message=f"The bridge does not run on {capabilities}: it needs 4.0 or newer.",
            )
        )
    return tuple(found)


def entity_findings(entity: model.Entity, capabilities: Capabilities) -> tuple[Finding, ...]:
    """Return the findings of an entity; those of a topic omit its subscriptions'."""
    found = []
    time_to_live_ms = entity.default_message_time_to_live_ms
    if time_to_live_ms > TTL_MAX_MS and not is_forever(time_to_live_ms):
        found.append(
            Finding(
                entity=entity.path,
                property="DefaultMessageTimeToLive",
                grade=BY_THE_BRIDGE,
                message=f"{format_duration(time_to_live_ms)} is longer than RabbitMQ's "
                f"{format_duration(TTL_MAX_MS)}; it is in no policy, and the bridge keeps it.",
            )
        )
    size_kb = 0 if isinstance(entity, model.Subscription) else entity.max_message_size_kb or 0
    if needed_bytes(size_kb) > capabilities.message_bytes_max:
        found.append(
            Finding(
                entity=entity.path,
                property="MaxMessageSizeInKilobytes",
                grade=APPROXIMATE,
                message=_too_large(size_kb, capabilities),
            )
        )
    if not isinstance(entity, model.Topic) and entity.requires_session and entity.forward_to:
        found.append(
            Finding(
                entity=entity.path,
                property="ForwardTo",
                grade=APPROXIMATE,
                message=f"It requires sessions: its messages stay, and are not forwarded to "
                f"{entity.forward_to!r}. What Service Bus does then is not known.",
            )
        )
    return tuple(found)


def tier_findings(tier: model.Tier, capabilities: Capabilities) -> tuple[Finding, ...]:
    """Return the findings of entities that have a tier's default settings."""
    size_kb = TIER_MESSAGE_SIZE_KB[tier]
    if needed_bytes(size_kb) <= capabilities.message_bytes_max:
        return ()
    return (
        Finding(
            entity="",
            property="MaxMessageSizeInKilobytes",
            grade=APPROXIMATE,
            message=f"{tier.value}: {_too_large(size_kb, capabilities)}",
        ),
    )


def needed_bytes(size_kb: int) -> int:
    """Return the `max_message_size` that messages of a size need."""
    return size_kb * 1024 + ENVELOPE_BYTES_MAX


def _too_large(size_kb: int, capabilities: Capabilities) -> str:
    return (
        f"Messages of {size_kb:,} KB are more than {capabilities} takes "
        f"({capabilities.message_bytes_max // 1024:,} KB with the bridge's own bytes): larger ones "
        f"are refused. Set max_message_size = {needed_bytes(size_kb)} in rabbitmq.conf."
    )
