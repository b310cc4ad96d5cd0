"""A topology declared by other code than ours: pika and the management API, as two witnesses."""

from __future__ import annotations

from urllib.parse import quote

from pika.adapters.blocking_connection import BlockingChannel

from bridge.topology.resources import Topology, Value
from tests.fixtures.broker import Broker

DEADLINE_S = 120.0


def declare(channel: BlockingChannel, topology: Topology) -> None:
    """Declare exchanges, queues and bindings, one after another as they stand there."""
    for exchange in topology.exchanges:
        channel.exchange_declare(
            exchange.name, exchange.type, durable=True, arguments=exchange.arguments
        )
    for queue in topology.queues:
        channel.queue_declare(queue.name, durable=True, arguments=queue.arguments)
    for binding in topology.bindings:
        assert not binding.to_exchange
        channel.queue_bind(
            binding.destination, binding.source, binding.routing_key, binding.arguments
        )


def put_policies(broker: Broker, vhost: str, topology: Topology) -> None:
    """Set all policies and global parameters."""
    for policy in topology.policies:
        kind = "operator-policies" if policy.is_operator else "policies"
        broker.management(
            "PUT",
            f"/api/{kind}/{vhost}/{quote(policy.name, safe='')}",
            {
                "pattern": policy.pattern,
                "definition": policy.definition,
                "priority": policy.priority,
                "apply-to": policy.apply_to,
            },
        )
    for parameter in topology.parameters:
        broker.management(
            "PUT",
            f"/api/global-parameters/{quote(parameter.name, safe='')}",
            {"value": parameter.value},
        )


def effective_settings(broker: Broker, vhost: str) -> dict[str, tuple[Value, Value, Value]]:
    """Each queue's policy, operator policy and effective settings, as RabbitMQ shows them."""
    return {
        row["name"]: (
            row.get("policy"),
            row.get("operator_policy"),
            row.get("effective_policy_definition"),
        )
        for row in broker.management("GET", f"/api/queues/{vhost}")
    }


def count(channel: BlockingChannel, queue: str) -> int:
    """How many messages are ready in a queue."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)
