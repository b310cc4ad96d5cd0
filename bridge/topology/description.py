"""What a client on RabbitMQ is told of an entity: its definition, and the RabbitMQ it is on."""

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
    """An entity, and the RabbitMQ that it is on.

    Attributes:
        is_clustered: whether that has several nodes.
        tier: of the namespace.
        is_peeked: somebody has peeked it: whoever settles its messages says so (`wire.settled`).
        full: why it takes no more messages now; "" if it does.
    """

    entity: model.Entity
    capabilities: Capabilities
    is_clustered: bool
    tier: Tier
    is_peeked: bool = False
    full: str = ""

    @property
    def message_bytes_max(self) -> int:
        """The largest message that may be sent."""
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
    """Return a description as a bridge answers it."""
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
        ValueError, LookupError, ServiceBusError: it is none that this version knows.
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
