"""ARM templates: JSON as written by hand, exported from Azure, or made by `bicep build`.

Parameters take the values of a parameter file, else their defaults. A value that only Azure knows
is a finding with line and path. A subscription with rules in the template does not keep Azure's
rule `$Default`: the first rule that the control plane adds replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping

from policies.errors import Fault, Position, ReadError
from policies.readers import azureresource, jsontext
from policies.readers.arm.template import RULES, Resource, Template
from policies.readers.arm.unresolved import is_unresolved, reason, unresolved
from policies.readers.choice import of_one_namespace
from policies.readers.draft import NamespaceDraft
from policies.readers.jsontext import Node
from policies.readers.reading import Notes, Reading

_ORDER = {kind: kind.count("/") for kind in azureresource.KINDS}

_PARAMETER_REMEDY = "Give one with --parameter NAME=VALUE, or a file with --parameters."


def is_this(document: Node) -> bool:
    """Whether a JSON document is a deployment template."""
    is_template = "deploymenttemplate.json" in document["$schema"].text.lower()
    return is_template and "resources" in document


def read_parameters(text: str, source: str) -> dict[str, object]:
    """Return the values of a parameter file.

    Raises:
        ReadError: the text is no parameter file.
    """
    document = jsontext.parse(text, source)
    if not isinstance(document["parameters"].value, dict):
        fault = Fault(
            place=document.place,
            message="This is no parameter file: it has no object 'parameters'.",
            remedy='It looks like {"parameters": {"name": {"value": ...}}}.',
        )
        raise ReadError(source, [fault])
    return {
        name: each["value"].plain()
        if "value" in each
        else unresolved(f"the parameter {name!r} is a secret in a key vault")
        for name, each in document["parameters"].members.items()
    }


def read_document(
    document: Node,
    source: str,
    *,
    parameters: Mapping[str, object] | None = None,
    namespace: str | None = None,
) -> Reading:
    """Return the namespace of a parsed template; `namespace` names one of several."""
    notes = Notes(source)

    def note(place: Position, prop: str, message: str) -> None:
        match prop:
            case "condition":
                notes.finding(place, "", prop, message, grade="approximate")
            case "parameters":
                notes.fault(place, message, _PARAMETER_REMEDY)
            case _:
                notes.leave_out(place, "", prop, message)

    template = Template.of(document, parameters or {}, note)
    for name in parameters or {}:
        if name not in document["parameters"]:
            notes.fault(
                document["parameters"].place,
                f"The template has no parameter {name!r}.",
                "Take it out of the parameter file.",
            )
    draft = NamespaceDraft(notes)
    found = sorted(template.resources(), key=lambda each: _ORDER.get(each.kind, 99))
    for resource in of_one_namespace(
        notes,
        found,
        lambda each: each.names[0],
        lambda each: each.body.place,
        namespace,
        lambda each: each.written,
    ):
        _add(draft, resource)
    return draft.finish()


def _add(draft: NamespaceDraft, resource: Resource) -> None:
    notes, place = draft.notes, resource.body.place
    if resource.unknown:
        _leave_out_rule(draft, resource, resource.unknown)
        return
    if resource.kind not in azureresource.KINDS:
        entity = resource.names[-2] if resource.kind.count("/") > 1 else ""
        message = f"{resource.kind} is nothing that RabbitMQ gets from here."
        notes.finding(place, "" if is_unresolved(entity) else entity, resource.kind, message)
        return
    if resource.is_existing or not azureresource.is_named(
        notes, place, resource.kind, resource.names
    ):
        if resource.kind == "namespaces":
            azureresource.add_namespace(draft, resource.names[0], resource.body)
        elif not resource.is_existing:
            _leave_out_rule(draft, resource, reason(resource.names[-1]))
        return
    names = [azureresource.entity_name(name) for name in resource.names]
    azureresource.add(draft, resource.kind, names, resource.body, resource.body["properties"])


def _leave_out_rule(draft: NamespaceDraft, resource: Resource, why: str) -> None:
    """Note an unknown rule at its subscription, which then does not get Azure's `$Default`."""
    if resource.kind == RULES:
        _, topic, subscription, _ = map(azureresource.entity_name, resource.names)
        owner = draft.find_subscription(topic, subscription)
        if owner is not None:
            owner.leave_out_rule("?", resource.body.place, why)
