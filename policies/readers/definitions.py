"""A RabbitMQ definitions file: the bridge's own entities, or a foreign broker's queues.

A file with the bridge's global parameters has the full definitions of the entities, and is read
back exactly. In any other file queues, policies, and fanout and headers exchanges become the
nearest entities of Service Bus; all else is a finding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote

from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.topology import definitions
from policies.readers.foreign import read_broker
from policies.readers.foreignbroker import Broker
from policies.readers.jsontext import Node
from policies.readers.reading import Notes, Reading


def is_this(document: Node) -> bool:
    """Whether a JSON document is a definitions file."""
    return any(key in document for key in ("rabbit_version", "rabbitmq_version")) or (
        "queues" in document and "exchanges" in document
    )


def read_document(document: Node, source: str, *, vhost: str | None = None) -> Reading:
    """Return the namespace of a parsed definitions file."""
    notes = Notes(source)
    known = _namespaces(document)
    vhosts = [name for name in known if vhost in (None, name)]
    if len(vhosts) > 1:
        notes.fault(
            document["global_parameters"].place,
            "The file has namespaces in several vhosts: " + ", ".join(map(repr, vhosts)) + ".",
            "Say which one with --input-vhost NAME.",
        )
        notes.check()
    if vhosts:
        return _own(notes, known[vhosts[0]])
    return read_broker(_broker(notes, document, vhost), notes)


@dataclass(slots=True)
class _Stored:
    namespace: Node | None = None
    entities: list[Node] = field(default_factory=list)


def _namespaces(document: Node) -> dict[str, _Stored]:
    """Return the definitions in the bridge's global parameters, by vhost."""
    found: dict[str, _Stored] = {}
    for parameter in document["global_parameters"].items:
        name = parameter["name"].text
        if name.startswith(definitions.NAMESPACE_PREFIX):
            vhost = unquote(name.removeprefix(definitions.NAMESPACE_PREFIX))
            found.setdefault(vhost, _Stored()).namespace = parameter["value"]
        elif name.startswith(definitions.PREFIX):
            vhost = unquote(name.removeprefix(definitions.PREFIX).split(":")[0])
            found.setdefault(vhost, _Stored()).entities.append(parameter["value"])
    return found


def _own(notes: Notes, stored: _Stored) -> Reading:
    base, entities = model.Namespace(), []
    if stored.namespace is not None:
        try:
            base = definitions.namespace_from_json(stored.namespace.plain())  # type: ignore[arg-type]
        except ServiceBusError as error:
            notes.fault(stored.namespace.place, str(error), "Mend the definition.")
    for node in stored.entities:
        try:
            entities.append(definitions.from_json(node.plain()))  # type: ignore[arg-type]
        except ServiceBusError as error:
            notes.fault(node.place, f"The definition of {node['name'].text!r}: {error}", "Mend it.")
            continue
        notes.findings += definitions.unknown_fields(node.plain())  # type: ignore[arg-type]
    notes.check()
    try:
        namespace = definitions.assemble(base, entities)
    except ServiceBusError as error:
        notes.fault(stored.entities[0].place, str(error), "Remove one of them.")
        notes.check()
        raise
    return Reading(namespace=namespace, findings=tuple(notes.findings))


def _broker(notes: Notes, document: Node, vhost: str | None) -> Broker:
    """Return the objects of one vhost; a per-vhost export names no vhost in its objects."""
    lists = ("queues", "exchanges", "bindings", "policies")
    vhosts = {
        item["vhost"].text for key in lists for item in document[key].items if item["vhost"].text
    }
    if vhost is None and len(vhosts) > 1:
        notes.fault(
            document["queues"].place,
            "The file has several vhosts: " + ", ".join(map(repr, sorted(vhosts))) + ".",
            "Say which one with --input-vhost NAME.",
        )
        notes.check()
    chosen = vhost or next(iter(vhosts), "/")
    vhosts |= {item["name"].text for item in document["vhosts"].items}
    if vhosts and chosen not in vhosts:
        notes.fault(
            document["queues"].place,
            f"The file has no vhost {chosen!r}.",
            "It has " + ", ".join(map(repr, sorted(vhosts))) + ".",
        )
        notes.check()

    def of(key: str) -> list[Node]:
        return [item for item in document[key].items if item["vhost"].text in ("", chosen)]

    version = document["rabbitmq_version"].text or document["rabbit_version"].text
    return Broker(
        vhost=chosen,
        version=version,
        queues=of("queues"),
        exchanges=of("exchanges"),
        bindings=of("bindings"),
        policies=of("policies"),
        operator_policies=[
            item["value"]
            for item in of("parameters")
            if item["component"].text == "operator_policy"
        ],
    )
