"""Differences between RabbitMQ's versions that matter to a migration from Service Bus."""

from __future__ import annotations

from collections.abc import Callable

from bridge.model.duration import format_duration
from bridge.topology.capabilities import OLDEST_SERVED, TTL_MAX_MS, Capabilities
from bridge.topology.policy import MEBIBYTE


def facts(capabilities: Capabilities) -> dict[str, str]:
    """Return how a version behaves, a text for each feature in which versions differ."""
    return {title: say(capabilities) for title, say in _FACTS.items()}


def _unlimited(capabilities: Capabilities) -> str:
    if capabilities.has_unlimited_policy:
        return "accepted in a policy"
    return "refused in a policy; as an argument it drops messages"


def _default_limit(capabilities: Capabilities) -> str:
    limit = capabilities.delivery_limit_default
    return "none" if limit is None else f"{limit}: given up after {limit + 1} deliveries"


def _consumer_timeout(capabilities: Capabilities) -> str:
    if not capabilities.has_queue_consumer_timeout:
        return "one for the node (30 minutes)"
    return f"of a queue, {'exact' if capabilities.has_exact_consumer_timeout else 'to the minute'}"


_FACTS: dict[str, Callable[[Capabilities], str]] = {
    "the bridge": lambda capabilities: (
        "runs" if capabilities.version >= OLDEST_SERVED else "does not run"
    ),
    "`delivery-limit` -1": _unlimited,
    "delivery limit of a queue that has none": _default_limit,
    "counts as a failed delivery": lambda capabilities: (
        "`basic.reject`, `basic.nack`, a lost channel"
        if capabilities.nack_counts
        else "`basic.reject`, a lost channel"
    ),
    "consumer timeout": _consumer_timeout,
    "delayed retry": lambda capabilities: (
        "yes; not used, Service Bus has none" if capabilities.has_delayed_retry else "no"
    ),
    "dead-lettering at least once": lambda _: "from quorum queues that reject publishes when full",
    "longest TTL": lambda _: format_duration(TTL_MAX_MS),
    "largest message as delivered": lambda capabilities: (
        f"{capabilities.message_bytes_max // MEBIBYTE} MiB"
    ),
}
