"""What would carry out our outputs, where the real thing is not at hand, over the management API.

The operator of Kubernetes and the provider of Terraform do one request for each object; here the
same requests are made from the same fields.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import hcl2
import yaml

from tests.fixtures.broker import Broker


def segment(text: str) -> str:
    """A part of a URL's path."""
    return quote(text, safe="")


def run_rabbitmqctl(broker: Broker, words: list[str], document: str | None) -> None:
    """`rabbitmqctl`, as far as our scripts use it."""
    match words:
        case ["rabbitmqctl", "add_vhost", _]:
            pass
        case ["rabbitmqctl", "eval", _]:
            pass
        case ["rabbitmqctl", "import_definitions"]:
            assert document is not None
            broker.management("POST", "/api/definitions", json.loads(document))
        case ["rabbitmqctl", "--vhost", vhost, verb, name, pattern, definition, *options]:
            kind = {"set_policy": "policies", "set_operator_policy": "operator-policies"}[verb]
            assert options[::2] == ["--priority", "--apply-to"]
            body = {
                "pattern": pattern,
                "definition": json.loads(definition),
                "priority": int(options[1]),
                "apply-to": options[3],
            }
            broker.management("PUT", f"/api/{kind}/{segment(vhost)}/{segment(name)}", body)
        case _:
            raise AssertionError(words)


def run_rabbitmqadmin_2(broker: Broker, words: list[str], document: str | None) -> None:
    """Version 2 of `rabbitmqadmin`, as far as our scripts use it."""
    assert words.pop(0) == "rabbitmqadmin"
    if words[:2] == ["definitions", "import"]:
        assert document is not None
        broker.management("POST", "/api/definitions", json.loads(document))
        return
    if words[:2] == ["vhosts", "declare"]:
        return
    option, vhost, group, verb, *rest = words
    assert (option, verb) == ("--vhost", "declare")
    given = dict(word.removeprefix("--").split("=", 1) for word in rest)
    for key in ("arguments", "definition"):
        if key in given:
            given[key] = json.loads(given[key])
    name = segment(given.pop("name", ""))
    if group == "bindings":
        _bind(broker, vhost, {key.replace("-", "_"): value for key, value in given.items()})
    elif group == "queues":
        arguments = {"x-queue-type": given["type"], **given["arguments"]}
        body = {"durable": given["durable"] == "true", "arguments": arguments}
        broker.management("PUT", f"/api/queues/{segment(vhost)}/{name}", body)
    elif group == "exchanges":
        body = {"durable": True, "type": given["type"], "arguments": given["arguments"]}
        broker.management("PUT", f"/api/exchanges/{segment(vhost)}/{name}", body)
    else:
        path = f"/api/{group.replace('_', '-')}/{segment(vhost)}/{name}"
        broker.management("PUT", path, {**given, "priority": int(given["priority"])})


def apply_kubernetes(broker: Broker, text: str) -> None:
    """The Messaging Topology Operator, once every object has been reconciled."""
    later = []
    for document in yaml.safe_load_all(text):
        spec, kind = document["spec"], document["kind"]
        if kind == "Vhost":
            continue
        vhost = spec.get("vhost", "/")
        if kind == "Binding":
            later.append((vhost, spec))
            continue
        path = {
            "Queue": "queues",
            "Exchange": "exchanges",
            "Policy": "policies",
            "OperatorPolicy": "operator-policies",
        }[kind]
        body = {key: spec[key] for key in ("durable", "type", "arguments") if key in spec}
        if kind == "Queue":
            body = {
                "durable": True,
                "arguments": {**spec.get("arguments", {}), "x-queue-type": spec["type"]},
            }
        if kind.endswith("Policy"):
            body = {
                "pattern": spec["pattern"],
                "definition": spec["definition"],
                "priority": spec["priority"],
                "apply-to": spec["applyTo"],
            }
        broker.management("PUT", f"/api/{path}/{segment(vhost)}/{segment(spec['name'])}", body)
    for vhost, spec in later:
        _bind(
            broker,
            vhost,
            {
                "source": spec["source"],
                "destination": spec["destination"],
                "destination_type": spec["destinationType"],
                "routing_key": spec.get("routingKey", ""),
                "arguments": spec.get("arguments", {}),
            },
        )


def apply_terraform(broker: Broker, text: str) -> None:
    """`terraform apply` with the `cyrilgdn/rabbitmq` provider: what needs others comes later."""
    resources: dict[tuple[str, str], Any] = {}
    for block in hcl2.loads(text)["resource"]:
        ((kind, labelled),) = block.items()
        ((name, body),) = labelled.items()
        resources[_plain(kind), _plain(name)] = body

    def value(raw: Any) -> Any:
        """A value, references to other resources followed."""
        if isinstance(raw, dict):
            return {_plain(k): value(v) for k, v in raw.items() if k != "__is_block__"}
        if isinstance(raw, list):
            return [value(each) for each in raw]
        if isinstance(raw, str) and (match := re.fullmatch(r"\$\{(\w+)\.(\w+)\.name\}", raw)):
            return value(resources[match[1], match[2]]["name"])
        return _plain(raw) if isinstance(raw, str) else raw

    for (kind, _), body in sorted(resources.items(), key=lambda item: _turn(item[0][0])):
        if kind == "terraform_data":
            path, sent = value(body["triggers_replace"])
            verb = "PUT" if path.startswith("global-parameters") else "POST"
            broker.management(verb, f"/api/{path}", json.loads(sent))
            continue
        if kind == "rabbitmq_vhost":
            continue
        own = value(body)
        vhost = own["vhost"]
        if kind == "rabbitmq_binding":
            _bind(broker, vhost, {**own, "arguments": json.loads(own.get("arguments_json", "{}"))})
            continue
        group = {
            "rabbitmq_policy": "policies",
            "rabbitmq_operator_policy": "operator-policies",
            "rabbitmq_exchange": "exchanges",
            "rabbitmq_queue": "queues",
        }[kind]
        (block,) = own.get("policy") or own["settings"]
        if "arguments_json" in block:
            block["arguments"] = json.loads(block.pop("arguments_json"))
        elif "arguments" in block:
            block["arguments"] = {k: str(v) for k, v in block["arguments"].items()}
        if "apply_to" in block:
            block["apply-to"] = block.pop("apply_to")
        broker.management("PUT", f"/api/{group}/{segment(vhost)}/{segment(own['name'])}", block)


def _turn(kind: str) -> int:
    return 1 if kind in ("terraform_data", "rabbitmq_binding") else 0


def _plain(text: str) -> str:
    if not text.startswith('"'):
        return text
    read: str = json.loads(text)
    return read.replace("$${", "${").replace("%%{", "%{")


def _bind(broker: Broker, vhost: str, binding: dict[str, Any]) -> None:
    ends = ("e", binding["source"], binding["destination_type"][0], binding["destination"])
    path = "/".join(map(segment, (vhost, *ends)))
    body = {"routing_key": binding["routing_key"], "arguments": binding["arguments"]}
    broker.management("POST", f"/api/bindings/{path}", body)
