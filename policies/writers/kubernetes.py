"""YAML for the RabbitMQ Messaging Topology Operator (`rabbitmq.com/v1beta1`).

No library writes the YAML: every scalar is JSON, which YAML includes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from bridge.topology.resources import Finding, Value
from policies.writers.labels import DIGEST_LENGTH, digest, label
from policies.writers.output import (
    DEFAULT_VHOST,
    KubernetesPlace,
    Wanted,
    Written,
    lost_parameters,
    lost_shovels,
)

_NAME_LENGTH_MAX = 63
"""An object's name may be longer, the value of a label made of it may not."""


def write(wanted: Wanted) -> Written:
    """Return a YAML document for each object; the operator retries one that comes too early."""
    documents = [
        _document(kind, name, spec, wanted.kubernetes) for kind, name, spec in objects(wanted)
    ]
    return Written(
        text=_DELETION + "---\n".join(documents),
        findings=(
            *lost_parameters(wanted, "The Topology Operator"),
            *lost_shovels(wanted, "The Topology Operator may make a shovel before its queue"),
            *_deletions(wanted),
        ),
    )


_DELETION = """\
# Deleting one of these objects (or their namespace) deletes it in RabbitMQ too: a Queue with its
# messages, a Vhost with all its queues.
"""


def _deletions(wanted: Wanted) -> tuple[Finding, ...]:
    if not wanted.topology.queues:
        return ()
    return (
        Finding(
            entity="",
            property="queues",
            grade="approximate",
            message="Whoever deletes a Queue or Vhost object, or the Kubernetes namespace, deletes "
            "the queue in RabbitMQ with its messages.",
        ),
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


def _document(kind: str, name: str, spec: _Spec, place: KubernetesPlace) -> str:
    given = {key: value for key, value in spec.items() if value not in ({}, "")}
    lines = [
        "apiVersion: rabbitmq.com/v1beta1",
        f"kind: {kind}",
        "metadata:",
        f"  name: {json.dumps(_object_name(kind, name, spec))}",
    ]
    if place.namespace:
        lines.append(f"  namespace: {json.dumps(place.namespace)}")
    lines += [
        "spec:",
        *_mapping(given, indent=2),
        "  rabbitmqClusterReference:",
        f"    name: {json.dumps(place.cluster)}",
    ]
    if place.cluster_namespace:
        lines.append(f"    namespace: {json.dumps(place.cluster_namespace)}")
    return "\n".join(lines) + "\n"


def _object_name(kind: str, name: str, spec: _Spec) -> str:
    """Return an object's name; a binding's has its two ends, and a digest of all properties."""
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
