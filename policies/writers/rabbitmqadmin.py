"""`rabbitmqadmin`: version 1, which RabbitMQ includes up to 4.0, or version 2 for newer RabbitMQs.

Both use the management API; login and host come from the user (`~/.rabbitmqadmin.conf`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from bridge.topology.resources import Binding, Exchange, Policy, Queue, Topology, Value
from policies.writers import bash, definitions
from policies.writers.output import DEFAULT_VHOST, Wanted, Written
from policies.writers.script import Command

VERSION_2_FROM = (4, 1)
"""From here on RabbitMQ leaves version 1 out (its Debian packages too)."""


def write(wanted: Wanted) -> Written:
    """Return a script for bash."""
    return Written(text=bash.render(commands(wanted)))


def commands(wanted: Wanted) -> tuple[Command, ...]:
    """Return the commands that create the wanted objects, policies before queues."""
    is_new = wanted.target.version >= VERSION_2_FROM
    found = [
        Command(words=(_words_2 if is_new else _words_1)(wanted.vhost, *declaration))
        for declaration in _declarations(wanted)
    ]
    if wanted.topology.parameters:
        parameters = Topology(parameters=wanted.topology.parameters)
        found.append(
            Command(
                words=("rabbitmqadmin", "definitions", "import", "--stdin")
                if is_new
                else ("rabbitmqadmin", "import", "/dev/stdin"),
                document=definitions.document(parameters, wanted.vhost),
                takes_file=False,
            )
        )
    return tuple(found)


_Options = Mapping[str, str]


def _declarations(wanted: Wanted) -> list[tuple[str, _Options]]:
    """Return kind and properties of each object, under names for both versions."""
    topology = wanted.topology
    found: list[tuple[str, _Options]] = []
    if wanted.vhost != DEFAULT_VHOST:
        found.append(("vhost", {"name": wanted.vhost}))
    found += [
        ("operator_policy" if policy.is_operator else "policy", _policy(policy))
        for policy in topology.policies
    ]
    found += [("exchange", _exchange(exchange)) for exchange in topology.exchanges]
    found += [("queue", _queue(queue)) for queue in topology.queues]
    found += [("binding", _binding(binding)) for binding in topology.bindings]
    found += [
        ("parameter", {"component": "shovel", "name": each.name, "value": _json(each.value)})
        for each in topology.shovels
    ]
    return found


def _policy(policy: Policy) -> _Options:
    return {
        "name": policy.name,
        "pattern": policy.pattern,
        "definition": _json(policy.definition),
        "priority": str(policy.priority),
        "apply-to": policy.apply_to,
    }


def _exchange(exchange: Exchange) -> _Options:
    return {
        "name": exchange.name,
        "type": exchange.type,
        "durable": "true",
        "arguments": _json(exchange.arguments),
    }


def _queue(queue: Queue) -> _Options:
    return {
        "name": queue.name,
        "type": str(queue.arguments["x-queue-type"]),
        "durable": "true",
        "arguments": _json(queue.arguments),
    }


def _binding(binding: Binding) -> _Options:
    return {
        "source": binding.source,
        "destination": binding.destination,
        "destination_type": "exchange" if binding.to_exchange else "queue",
        "routing_key": binding.routing_key,
        "arguments": _json(binding.arguments),
    }


def _words_1(vhost: str, kind: str, options: _Options) -> tuple[str, ...]:
    """Return a command of version 1: `declare queue name=...`; arguments hold the queue's type."""
    given = [f"{key}={value}" for key, value in options.items() if (kind, key) != ("queue", "type")]
    return ("rabbitmqadmin", f"--vhost={vhost}", "declare", kind, *given)


_PLURALS = {"policy": "policies", "operator_policy": "operator_policies"}
_VERBS = {"parameter": "set"}


def _words_2(vhost: str, kind: str, options: _Options) -> tuple[str, ...]:
    """Return a command of version 2: `queues declare --name=...`; `=` allows a value with `-`."""
    given = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    group = _PLURALS.get(kind, f"{kind}s")
    where = () if kind == "vhost" else ("--vhost", vhost)
    return ("rabbitmqadmin", *where, group, _VERBS.get(kind, "declare"), *given)


def _json(value: Mapping[str, Value]) -> str:
    return json.dumps(value, separators=(",", ":"))
