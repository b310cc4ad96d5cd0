"""Descriptions of entities for clients on RabbitMQ: the definition and facts about RabbitMQ."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from bridge.model import entity as model
from bridge.model.entity import Tier
from bridge.model.tiers import sendable_bytes_max
from bridge.topology.capabilities import Capabilities
from bridge.topology.definitions import from_json, to_json


@dataclass(frozen=True, slots=True)
class DescribedEntity:
    """An entity, and facts about its RabbitMQ.

    Attributes:
        entity: the entity's definition.
        capabilities: those of RabbitMQ's version.
        is_clustered: whether RabbitMQ has several nodes.
        tier: the namespace's tier.
        is_peeked: the entity was peeked: clients must publish the numbers of settled messages
            (`wire.settled`).
        full: why the entity takes no more messages now; "" when it does.
    """

    entity: model.Entity
    capabilities: Capabilities
    is_clustered: bool
    tier: Tier
    is_peeked: bool = False
    full: str = ""

    @property
    def message_bytes_max(self) -> int:
        """The size limit of a sent message."""
        assert not isinstance(self.entity, model.Subscription)
        limit_bytes = self.capabilities.message_bytes_max
        return sendable_bytes_max(self.entity, self.tier, limit_bytes)


def encode(
    entity: model.Entity,
    *,
    rabbitmq_version: str,
    rabbitmq_bytes_max: int,
    is_clustered: bool,
    tier: Tier,
    is_peeked: bool,
    full: str,
) -> bytes:
    """Return the bytes of a description, as a bridge sends it to a client."""
    return json.dumps(
        {
            # A client of any version reads it: session ids are folded by the bridge alone.
            "entity": to_json(replace(entity, folds_session_ids=False)),
            "rabbitmqVersion": rabbitmq_version,
            "rabbitmqMaxMessageSize": rabbitmq_bytes_max,
            "isClustered": is_clustered,
            "tier": tier.value,
            "isPeeked": is_peeked,
            "full": full,
        }
    ).encode()


def decode(raw: bytes) -> DescribedEntity:
    """Read a description.

    Raises:
        ValueError, LookupError, ServiceBusError: the bytes are no description that this version
            can read.
    """
    form = json.loads(raw)
    capabilities = Capabilities.of(form["rabbitmqVersion"])
    limit_bytes = int(form.get("rabbitmqMaxMessageSize", capabilities.message_bytes_max))
    return DescribedEntity(
        from_json(form["entity"]),
        replace(capabilities, message_bytes_max=limit_bytes),
        bool(form["isClustered"]),
        Tier(form["tier"]),
        bool(form.get("isPeeked")),
        str(form.get("full", "")),
    )
