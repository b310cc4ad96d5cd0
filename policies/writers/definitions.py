"""Definitions JSON, for `rabbitmqctl import_definitions` and the management API."""

from __future__ import annotations

import json
from dataclasses import replace

from bridge.topology.resources import Finding, Policy, Topology, Value
from policies.writers.output import DEFAULT_VHOST, Wanted, Written, lost_shovels

Document = dict[str, list[dict[str, Value]]]


def write(wanted: Wanted) -> Written:
    """Return the definitions of one vhost, in the form of a whole broker's definitions.

    The form for one vhost has no place for global parameters.
    """
    topology = wanted.topology
    findings: tuple[Finding, ...] = ()
    if not wanted.target.has_predeclared_shovels:
        findings = lost_shovels(wanted, f"{wanted.target} imports shovels before queues")
        topology = replace(topology, shovels=())
    text = json.dumps(whole(topology, wanted.vhost), indent=2) + "\n"
    return Written(text=text, findings=findings)


def whole(topology: Topology, vhost: str) -> Document:
    """Return definitions as RabbitMQ's JSON, with the vhost itself unless it is `/`."""
    vhosts: Document = {} if vhost == DEFAULT_VHOST else {"vhosts": [{"name": vhost}]}
    return vhosts | document(topology, vhost)


def document(topology: Topology, vhost: str) -> Document:
    """Return the objects of a vhost as RabbitMQ's JSON, without empty lists."""
    operator = [policy for policy in topology.policies if policy.is_operator]
    found: Document = {
        "global_parameters": [
            {"name": parameter.name, "value": parameter.value} for parameter in topology.parameters
        ],
        "parameters": [
            *(
                _parameter(vhost, "operator_policy", policy.name, _settings(policy))
                for policy in operator
            ),
            *(
                _parameter(vhost, "shovel", shovel.name, dict(shovel.value))
                for shovel in topology.shovels
            ),
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


def _parameter(vhost: str, component: str, name: str, value: Value) -> dict[str, Value]:
    return {"vhost": vhost, "component": component, "name": name, "value": value}


def _settings(policy: Policy) -> dict[str, Value]:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }
