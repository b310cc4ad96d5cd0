"""YAML for the RabbitMQ Messaging Topology Operator (`rabbitmq.com/v1beta1`).

Written by hand and not by a library: every scalar is JSON, which YAML reads as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from bridge.topology.resources import Value
from policies.writers.labels import DIGEST_LENGTH, digest, label
from policies.writers.output import DEFAULT_VHOST, Wanted, Written, lost_parameters

CLUSTER = "rabbitmq"
"""The RabbitmqCluster that the objects belong to; meant to be replaced."""

_NAME_LENGTH_MAX = 63
"""An object's name may be longer, the value of a label made of it may not."""


def write(wanted: Wanted) -> Written:
    """Return one YAML document for each object; the operator retries what comes too early."""
    documents = [_document(kind, name, spec) for kind, name, spec in objects(wanted)]
    return Written(
        text="---\n".join(documents), findings=lost_parameters(wanted, "The Topology Operator")
    )


_Spec = Mapping[str, Value]


def objects(wanted: Wanted) -> list[tuple[str, str, _Spec]]:
    """Return kind, full name and specification of every object."""
    topology, vhost = wanted.topology, wanted.vhost
    found: list[tuple[str, str, _Spec]] = []
    if vhost != DEFAULT_VHOST:
        found.append(("Vhost", vhost, {"name": vhost}))
    found += [
        (
            "OperatorPolicy" if policy.is_operator else "Policy",
            policy.name,
            {
                "name": policy.name,
                "vhost": vhost,
                "pattern": policy.pattern,
                "applyTo": policy.apply_to,
                "priority": policy.priority,
                "definition": dict(policy.definition),
            },
        )
        for policy in topology.policies
    ]
    found += [
        (
            "Exchange",
            exchange.name,
            {
                "name": exchange.name,
                "vhost": vhost,
                "type": exchange.type,
                "durable": True,
                "arguments": dict(exchange.arguments),
            },
        )
        for exchange in topology.exchanges
    ]
    found += [
        (
            "Queue",
            queue.name,
            {
                "name": queue.name,
                "vhost": vhost,
                "type": queue.arguments["x-queue-type"],
                "durable": True,
                "arguments": {
                    key: value for key, value in queue.arguments.items() if key != "x-queue-type"
                },
            },
        )
        for queue in topology.queues
    ]
    found += [
        (
            "Binding",
            json.dumps(
                [binding.source, binding.destination, binding.routing_key, binding.arguments]
            ),
            {
                "vhost": vhost,
                "source": binding.source,
                "destination": binding.destination,
                "destinationType": "exchange" if binding.to_exchange else "queue",
                "routingKey": binding.routing_key,
                "arguments": dict(binding.arguments),
            },
        )
        for binding in topology.bindings
    ]
    return found


def _document(kind: str, name: str, spec: _Spec) -> str:
    given = {key: value for key, value in spec.items() if value not in ({}, "")}
    lines = [
        "apiVersion: rabbitmq.com/v1beta1",
        f"kind: {kind}",
        "metadata:",
        f"  name: {json.dumps(_object_name(kind, name, spec))}",
        "spec:",
        *_mapping(given, indent=2),
        "  rabbitmqClusterReference:",
        f"    name: {CLUSTER}",
    ]
    return "\n".join(lines) + "\n"


def _object_name(kind: str, name: str, spec: _Spec) -> str:
    """A binding is named after its two ends; equal ends are told apart by the digest."""
    if kind != "Binding":
        return label(name, separator="-", length_max=_NAME_LENGTH_MAX)
    ends = f"{spec['source']} to {spec['destination']}"
    readable = label(ends, separator="-", length_max=_NAME_LENGTH_MAX - DIGEST_LENGTH - 1)
    return f"{readable}-{digest(name)}"


def _mapping(mapping: Mapping[str, Value], *, indent: int) -> list[str]:
    lines = []
    for key, value in mapping.items():
        prefix = " " * indent + _key(key) + ":"
        if isinstance(value, dict) and value:
            lines += [prefix, *_mapping(value, indent=indent + 2)]
        else:
            lines.append(f"{prefix} {json.dumps(value)}")
    return lines


def _key(key: str) -> str:
    is_plain = key.replace("-", "").isalpha() and key.isascii() and not key.startswith("-")
    return key if is_plain and key.lower() not in _RESERVED else json.dumps(key)


_RESERVED = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
"""Words that YAML 1.1 takes for something else than text."""
