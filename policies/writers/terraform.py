"""Terraform for the `cyrilgdn/rabbitmq` provider.

The provider loses a binding whose names have a slash, and has no global parameters. A request to
the management API makes both; Terraform repeats the request when something in it changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote as percent

from bridge.topology.policy import matches
from bridge.topology.resources import (
    Binding,
    Exchange,
    Finding,
    Parameter,
    Policy,
    Queue,
    Shovel,
    Value,
)
from policies.writers.hcl import Attribute, Block, Body, quote, render
from policies.writers.labels import digest, label
from policies.writers.output import DEFAULT_VHOST, Wanted, Written
from policies.writers.script import Unquotable

_LABEL_LENGTH_MAX = 80

REQUEST = (
    r"""quoted() { printf %s "$1" | sed 's/[\\"]/\\&/g'; }; """
    r"""printf 'user = "%s"\ndata-binary = "%s"\n' "$(quoted "$LOGIN")" "$(quoted "$BODY")" | """
    'curl --fail --silent --show-error --config - --request "$VERB" '
    '--header "content-type: application/json" "$URL"'
)
"""Login and body (it may hold access keys) go through a pipe: a list of processes shows neither."""

_REQUIRED_VERSION = ">= 1.4"
"""The first Terraform with `terraform_data`."""

_PROVIDER_VERSION = "~> 1.8"
"""The series of the provider whose resources are written here."""


def write(wanted: Wanted) -> Written:
    """Return variables for endpoint and login, and one resource for each object.

    Raises:
        Unquotable: the vhost's name has an `@`, which separates names in the provider's ids.
    """
    if "@" in wanted.vhost:
        raise Unquotable(f"The Terraform provider takes no '@' in a vhost: {wanted.vhost!r}.")
    topology = wanted.topology
    is_own = wanted.vhost != DEFAULT_VHOST
    vhost = "rabbitmq_vhost.vhost.name" if is_own else quote(wanted.vhost)
    blocks = [*_header()]
    if is_own:
        name = Attribute(name="name", value=quote(wanted.vhost))
        body: Body = [name, _KEPT]
        blocks.append(Block(type="resource", labels=("rabbitmq_vhost", "vhost"), body=body))
    blocks += [_policy(policy, vhost) for policy in topology.policies]
    blocks += [_exchange(exchange, vhost) for exchange in topology.exchanges]
    blocks += [_queue(queue, vhost, topology.policies) for queue in topology.queues]
    blocks += [_binding(binding, vhost, wanted.vhost) for binding in topology.bindings]
    blocks += [_shovel(shovel, vhost) for shovel in topology.shovels]
    blocks += [_parameter(parameter) for parameter in topology.parameters]
    text = "\n".join("\n".join(render([block])) + "\n" for block in blocks)
    return Written(text=text, findings=_findings(wanted))


def _header() -> list[Block]:
    provider = {"source": quote("cyrilgdn/rabbitmq"), "version": quote(_PROVIDER_VERSION)}
    source = Attribute(name="rabbitmq", value=provider)
    required = Attribute(name="required_version", value=quote(_REQUIRED_VERSION))
    found = [
        Block(type="terraform", body=[required, Block(type="required_providers", body=[source])]),
        Block(
            type="variable",
            labels=("rabbitmq_endpoint",),
            body=[Attribute(name="default", value=quote("http://localhost:15672"))],
        ),
        Block(type="variable", labels=("rabbitmq_username",), body=[]),
        Block(
            type="variable",
            labels=("rabbitmq_password",),
            body=[Attribute(name="sensitive", value="true")],
        ),
    ]
    login: Body = [
        Attribute(name=name, value=f"var.rabbitmq_{name}")
        for name in ("endpoint", "username", "password")
    ]
    return [*found, Block(type="provider", labels=("rabbitmq",), body=login)]


def _policy(policy: Policy, vhost: str) -> Block:
    """Return a policy's block; the provider turns texts that look like a number into numbers."""
    settings: Body = [
        Attribute(name="pattern", value=quote(policy.pattern)),
        Attribute(name="priority", value=str(policy.priority)),
        Attribute(name="apply_to", value=quote(policy.apply_to)),
        Attribute(name="definition", value=_map(policy.definition)),
    ]
    return _resource(_policy_kind(policy), policy.name, vhost, Block(type="policy", body=settings))


def _exchange(exchange: Exchange, vhost: str) -> Block:
    """Return an exchange's block; the provider turns arguments into texts, which RabbitMQ takes."""
    settings: Body = [
        Attribute(name="type", value=quote(exchange.type)),
        Attribute(name="durable", value="true"),
        Attribute(name="arguments", value=_map(exchange.arguments)),
    ]
    return _resource("exchange", exchange.name, vhost, Block(type="settings", body=settings))


_KEPT = Block(type="lifecycle", body=[Attribute(name="prevent_destroy", value="true")])
"""What holds messages: Terraform refuses a plan that would destroy it."""


def _queue(queue: Queue, vhost: str, policies: Iterable[Policy]) -> Block:
    """Return a queue's block; `depends_on` makes the policies first, so that they always hold."""
    settings: Body = [
        Attribute(name="durable", value="true"),
        Attribute(name="arguments_json", value=_json(queue.arguments)),
    ]
    needed = [
        f"rabbitmq_{_policy_kind(policy)}.{_label(policy.name)}"
        for policy in policies
        if matches(policy, queue.name)
    ]
    more: Body = [_KEPT]
    if needed:
        more.insert(0, Attribute(name="depends_on", value=f"[{', '.join(needed)}]"))
    return _resource("queue", queue.name, vhost, Block(type="settings", body=settings), *more)


def _policy_kind(policy: Policy) -> str:
    return "operator_policy" if policy.is_operator else "policy"


def _binding(binding: Binding, vhost: str, vhost_name: str) -> Block:
    kind = "exchange" if binding.to_exchange else "queue"
    ends = [binding.source, binding.destination]
    key = json.dumps([*ends, binding.routing_key, binding.arguments])
    readable = label(" to ".join(ends), separator="_", length_max=_LABEL_LENGTH_MAX)
    name = f"_{readable}_{digest(key)}"
    source = f"rabbitmq_exchange.{_label(binding.source)}"
    destination = f"rabbitmq_{kind}.{_label(binding.destination)}"
    if any("/" in end for end in ends):
        path = "/".join(["bindings", *map(_segment, (vhost_name, "e", ends[0], kind[0], ends[1]))])
        body: dict[str, Value] = {
            "routing_key": binding.routing_key,
            "arguments": dict(binding.arguments),
        }
        return _request(name, "POST", path, body, [source, destination])
    own: Body = [
        Attribute(name="source", value=f"{source}.name"),
        Attribute(name="vhost", value=vhost),
        Attribute(name="destination", value=f"{destination}.name"),
        Attribute(name="destination_type", value=quote(kind)),
        Attribute(name="routing_key", value=quote(binding.routing_key)),
    ]
    if binding.arguments:
        own.append(Attribute(name="arguments_json", value=_json(binding.arguments)))
    return Block(type="resource", labels=("rabbitmq_binding", name), body=own)


_SHOVEL = {
    "src-uri": "source_uri",
    "src-queue": "source_queue",
    "dest-uri": "destination_uri",
    "dest-exchange": "destination_exchange",
    "ack-mode": "ack_mode",
}


def _shovel(shovel: Shovel, vhost: str) -> Block:
    info: Body = [
        Attribute(name=name, value=quote(str(shovel.value[key]))) for key, name in _SHOVEL.items()
    ]
    ends = (
        f"rabbitmq_queue.{_label(str(shovel.value['src-queue']))}",
        f"rabbitmq_exchange.{_label(str(shovel.value['dest-exchange']))}",
    )
    needed = Attribute(name="depends_on", value=f"[{', '.join(ends)}]")
    return _resource("shovel", shovel.name, vhost, Block(type="info", body=info), needed)


def _parameter(parameter: Parameter) -> Block:
    path = f"global-parameters/{_segment(parameter.name)}"
    return _request(_label(parameter.name), "PUT", path, {"value": parameter.value}, [])


def _request(
    name: str, verb: str, path: str, body: Mapping[str, Value], needed: list[str]
) -> Block:
    environment = {
        "LOGIN": '"${var.rabbitmq_username}:${var.rabbitmq_password}"',
        "VERB": quote(verb),
        "BODY": "self.triggers_replace[1]",
        "URL": '"${var.rabbitmq_endpoint}/api/${self.triggers_replace[0]}"',
    }
    own: Body = [
        Attribute(name="triggers_replace", value=f"[{quote(path)}, {_json(body)}]"),
        Attribute(name="depends_on", value=f"[{', '.join(needed)}]"),
        Block(
            type="provisioner",
            labels=("local-exec",),
            body=[
                Attribute(name="command", value=quote(REQUEST)),
                Attribute(name="environment", value=environment),
            ],
        ),
    ]
    return Block(type="resource", labels=("terraform_data", name), body=own)


def _resource(kind: str, name: str, vhost: str, settings: Block, *more: Attribute | Block) -> Block:
    own: Body = [
        Attribute(name="name", value=quote(name)),
        Attribute(name="vhost", value=vhost),
        settings,
        *more,
    ]
    return Block(type="resource", labels=(f"rabbitmq_{kind}", _label(name)), body=own)


def _findings(wanted: Wanted) -> tuple[Finding, ...]:
    if not any("/" in b.source + b.destination for b in wanted.topology.bindings):
        return ()
    return (
        Finding(
            entity="",
            property="bindings",
            grade="approximate",
            message="Terraform makes bindings and definitions here and does not remove them by "
            "themselves; 'busbridge policies plan' shows what is left over.",
        ),
    )


def _label(name: str) -> str:
    """Return an object's name in Terraform, with `_` first: a name may not begin with a digit."""
    return "_" + label(name, separator="_", length_max=_LABEL_LENGTH_MAX)


def _segment(text: str) -> str:
    return percent(text, safe="")


def _map(values: Mapping[str, Value]) -> dict[str, str]:
    return {
        quote(key): quote(value) if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }


def _json(value: Mapping[str, Value]) -> str:
    return quote(json.dumps(value))
