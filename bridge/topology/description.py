"""Descriptions of entities for clients on RabbitMQ: the definition and facts about RabbitMQ."""

from __future__ import annotations

import json
from dataclasses import dataclass

from bridge.model import entity as model
from bridge.model.entity import Tier
from bridge.model.tiers import message_size_max_bytes
from bridge.topology.capabilities import Capabilities
from bridge.topology.definitions import from_json, to_json


@dataclass(frozen=True, slots=True)
class Described:
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
        return message_size_max_bytes(self.entity, self.tier)


def encode(
    entity: model.Entity,
    *,
    rabbitmq_version: str,
    is_clustered: bool,
    tier: Tier,
    is_peeked: bool,
    full: str,
) -> bytes:
    """Return the bytes of a description, as a bridge sends it to a client."""
    return json.dumps(
        {
            "entity": to_json(entity),
            "rabbitmqVersion": rabbitmq_version,
            "isClustered": is_clustered,
            "tier": tier.value,
            "isPeeked": is_peeked,
            "full": full,
        }
    ).encode()


def decode(raw: bytes) -> Described:
    """Read a description.

    Raises:
        ValueError, LookupError, ServiceBusError: the bytes are no description that this version
            can read.
    """
    form = json.loads(raw)
    return Described(
        from_json(form["entity"]),
        Capabilities.of(form["rabbitmqVersion"]),
        bool(form["isClustered"]),
        Tier(form["tier"]),
        bool(form.get("isPeeked")),
        str(form.get("full", "")),
    )
