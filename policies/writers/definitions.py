"""Definitions JSON: what `rabbitmqctl import_definitions` and the management API take."""

from __future__ import annotations

import json

from bridge.topology.resources import Policy, Topology, Value
from policies.writers.output import DEFAULT_VHOST, Wanted, Written

Document = dict[str, list[dict[str, Value]]]


def write(wanted: Wanted) -> Written:
    """Return the definitions of one vhost, in the form of a whole broker's.

    A per-vhost file would have no place for global parameters.
    """
    return Written(text=json.dumps(document(wanted.topology, wanted.vhost), indent=2) + "\n")


def document(topology: Topology, vhost: str) -> Document:
    """Return definitions as RabbitMQ's JSON; parts that are empty are left out."""
    operator = [policy for policy in topology.policies if policy.is_operator]
    found: Document = {
        "vhosts": [] if vhost == DEFAULT_VHOST else [{"name": vhost}],
        "global_parameters": [
            {"name": parameter.name, "value": parameter.value} for parameter in topology.parameters
        ],
        "parameters": [
            {
                "vhost": vhost,
                "component": "operator_policy",
                "name": policy.name,
                "value": _settings(policy),
            }
            for policy in operator
        ],
        "policies": [
            {"vhost": vhost, "name": policy.name, **_settings(policy)}
            for policy in topology.policies
            if not policy.is_operator
        ],
        "queues": [
            {
                "name": queue.name,
                "vhost": vhost,
                "durable": True,
                "auto_delete": False,
                "arguments": dict(queue.arguments),
            }
            for queue in topology.queues
        ],
        "exchanges": [
            {
                "name": exchange.name,
                "vhost": vhost,
                "type": exchange.type,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": dict(exchange.arguments),
            }
            for exchange in topology.exchanges
        ],
        "bindings": [
            {
                "source": binding.source,
                "vhost": vhost,
                "destination": binding.destination,
                "destination_type": "exchange" if binding.to_exchange else "queue",
                "routing_key": binding.routing_key,
                "arguments": dict(binding.arguments),
            }
            for binding in topology.bindings
        ],
    }
    return {part: items for part, items in found.items() if items}


def _settings(policy: Policy) -> dict[str, Value]:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }
