"""The interface of a flavour: with the bridge (`bridged`), or RabbitMQ alone (`plain`).

The compiler itself joins the parts and makes policies, priorities and ceilings, alike for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from bridge.model import entity as model
from bridge.model.capacity import capacity_mb
from bridge.topology.capabilities import TTL_MAX_MS, Capabilities
from bridge.topology.policy import MEBIBYTE
from bridge.topology.resources import Queue, Topology, Value


class Flavour(Protocol):
    """Turns a namespace into exchanges, queues and bindings, and into settings for policies."""

    def pieces(self, namespace: model.Namespace, capabilities: Capabilities) -> Iterable[Topology]:
        """Return the parts in an order in which they can be declared; they have no policies.

        Raises:
            EntityConflict: the names of two entities, or of an entity and an existing resource,
                conflict.
        """

    def made_on_use(self, namespace: model.Namespace) -> Iterable[Queue]:
        """Return one queue of each kind that is made on its first use, and so in no topology.

        A policy protects all queues of such a kind from their beginning.
        """

    def settings(self, namespace: model.Namespace) -> Mapping[str, Mapping[str, Value]]:
        """Return the policy settings of each queue, by the queue's name."""


def queue_settings(
    entity: model.Queue | model.Subscription, topic: model.Topic | None = None
) -> dict[str, Value]:
    """Return the policy settings of an entity's active queue; a subscription needs its topic.

    `delivery-limit` is MaxDeliveryCount - 1. A TTL that is too long for RabbitMQ is left out: the
    bridge applies it.
    """
    sized = topic if isinstance(entity, model.Subscription) else entity
    time_to_live_ms = entity.default_message_time_to_live_ms
    if topic is not None:
        time_to_live_ms = min(time_to_live_ms, topic.default_message_time_to_live_ms)
    settings: dict[str, Value] = {"delivery-limit": entity.max_delivery_count - 1}
    if sized is not None:
        settings["max-length-bytes"] = capacity_mb(sized) * MEBIBYTE
    if time_to_live_ms <= TTL_MAX_MS:
        settings["message-ttl"] = time_to_live_ms
    return settings
