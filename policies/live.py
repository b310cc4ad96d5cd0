"""A broker's objects, from its definitions export, as the values that the compiler returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.model import entity as model
from bridge.topology import definitions
from bridge.topology.json_objects import as_object
from bridge.topology.resources import (
    Binding,
    Exchange,
    Finding,
    Parameter,
    Policy,
    Queue,
    Shovel,
    Topology,
)

Export = Mapping[str, Any]
"""Definitions as RabbitMQ exports them, of the whole broker."""


def topology_of(export: Export, vhost: str) -> Topology:
    """Return all objects of a vhost, foreign ones too, and its entities' global parameters."""
    prefix = definitions.parameter_prefix(vhost)
    namespace = definitions.namespace_parameter_name(vhost)
    return Topology(
        exchanges=tuple(
            Exchange(name=row["name"], type=row["type"], arguments=_arguments(row))
            for row in _rows(export, "exchanges", vhost)
        ),
        queues=tuple(
            Queue(name=row["name"], arguments={"x-queue-type": "classic"} | _arguments(row))
            for row in _rows(export, "queues", vhost)
        ),
        bindings=tuple(
            Binding(
                source=row["source"],
                destination=row["destination"],
                routing_key=row["routing_key"],
                to_exchange=row["destination_type"] == "exchange",
                arguments=_arguments(row),
            )
            for row in _rows(export, "bindings", vhost)
        ),
        policies=(
            *(_policy(row, row) for row in _rows(export, "policies", vhost)),
            *(
                _policy(row, row["value"], is_operator=True)
                for row in _rows(export, "parameters", vhost)
                if row["component"] == "operator_policy"
            ),
        ),
        shovels=tuple(
            Shovel(name=row["name"], value=dict(as_object(row["value"])))
            for row in _rows(export, "parameters", vhost)
            if row["component"] == "shovel"
        ),
        parameters=tuple(
            Parameter(name=row["name"], value=dict(as_object(row["value"])))
            for row in export.get("global_parameters", ())
            if row["name"] == namespace or row["name"].startswith(prefix)
        ),
    )


def namespace_of(live: Topology, vhost: str) -> tuple[model.Namespace | None, tuple[Finding, ...]]:
    """Return the namespace that a vhost's definitions describe, and a finding per unknown field.

    The namespace is `None` when the vhost has no definitions: no bridge and no `apply` wrote any.

    Raises:
        ServiceBusError: a definition is malformed.
    """
    own = definitions.namespace_parameter_name(vhost)
    base, found = None, []
    findings: list[Finding] = []
    for parameter in live.parameters:
        form = parameter.value
        if parameter.name == own:
            base = definitions.namespace_from_json(form)
        else:
            found.append(definitions.from_json(form))
            findings += definitions.unknown_fields(form)
    if base is None and not found:
        return None, ()
    return definitions.assemble(base or model.Namespace(), found), tuple(findings)


def merged(live: model.Namespace | None, wanted: model.Namespace) -> model.Namespace:
    """Return the wanted namespace, with the live entities that it does not mention."""
    everything = {} if live is None else _by_path(live)
    everything.update(_by_path(wanted))
    return definitions.assemble(wanted, everything.values())


def _by_path(namespace: model.Namespace) -> dict[str, model.Entity]:
    return {each.path.lower(): each for each in definitions.entities(namespace)}


def _rows(export: Export, part: str, vhost: str) -> list[Mapping[str, Any]]:
    return [row for row in export.get(part, ()) if row["vhost"] == vhost]


def _arguments(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's arguments; some versions of RabbitMQ write an empty table as a list."""
    return dict(row.get("arguments") or {})


def _policy(
    row: Mapping[str, Any], settings: Mapping[str, Any], *, is_operator: bool = False
) -> Policy:
    return Policy(
        name=row["name"],
        pattern=settings["pattern"],
        definition=dict(settings["definition"]),
        priority=settings.get("priority", 0),
        apply_to=settings.get("apply-to", "all"),
        is_operator=is_operator,
    )
