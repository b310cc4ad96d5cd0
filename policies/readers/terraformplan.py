"""The resources of a Terraform plan or state, and the references between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from policies.readers.jsontext import Node

_INDEX = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource that Terraform manages.

    Attributes:
        address: the resource's address, with its modules and its index.
        module: the address of the resource's module; "" for the root module.
        index: the instance's index of `count` or key of `for_each`, or `None`.
        values: the arguments and attributes whose values are known.
    """

    address: str
    module: str
    kind: str
    name: str
    index: object
    values: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan or state; a state has no configuration."""

    resources: tuple[Resource, ...]
    document: Node

    @classmethod
    def of(cls, document: Node) -> Plan:
        """Return the plan or state of a document."""
        values = document["planned_values"]
        root = (values if values.members else document["values"])["root_module"]
        return cls(resources=tuple(_resources(root)), document=document)

    def of_type(self, kind: str) -> list[Resource]:
        """Return the resources of one type."""
        return [each for each in self.resources if each.kind == kind]

    def unknown(self, resource: Resource) -> set[str]:
        """Return the attributes that are known, in whole or in part, only after `apply`."""
        for change in self.document["resource_changes"].items:
            if change["address"].text == resource.address:
                unknown = change["change"]["after_unknown"].members
                return {
                    key
                    for key, node in unknown.items()
                    if any(each.value is True for each in node.walk())
                }
        return set()

    def referred(self, resource: Resource, argument: str, kind: str) -> Resource | None:
        """Return the resource of type `kind` that an argument refers to; `None` if in doubt."""
        scope = self._configuration(resource.module)
        for configured in scope["resources"].items:
            if (configured["type"].text, configured["name"].text) == (resource.kind, resource.name):
                references = configured["expressions"][argument]["references"]
                return self._resolve(references, resource.module, kind, resource.index)
        return None

    def _resolve(self, references: Node, module: str, kind: str, index: object) -> Resource | None:
        texts = [node.text for node in references.items]
        if "each.key" not in texts and any(each.startswith("each.value.") for each in texts):
            # `each.value` decides which instance is meant, and the plan does not have that value.
            index = None
        for reference in texts:
            parts = _INDEX.sub("", reference).split(".")
            if parts[0] == kind and len(parts) > 1:
                return self._instance(module, kind, parts[1], index, reference)
            if parts[0] == "var" and module:
                return self._argument_of_module(module, parts[1], kind, index)
        return None

    def _argument_of_module(
        self, module: str, variable: str, kind: str, index: object
    ) -> Resource | None:
        parent, _, own = module.rpartition("module.")
        parent = parent.rstrip(".")
        call = self._configuration(parent)["module_calls"][_INDEX.sub("", own)]
        return self._resolve(call["expressions"][variable]["references"], parent, kind, index)

    def _instance(
        self, module: str, kind: str, name: str, index: object, reference: str
    ) -> Resource | None:
        found = [
            each
            for each in self.resources
            if (each.module, each.kind, each.name) == (module, kind, name)
        ]
        if len(found) == 1:
            return found[0]
        named = re.search(r"\[(\d+|\"[^\"]*\")\]", reference)
        wanted = index
        if named:
            wanted = int(named[1]) if named[1].isdigit() else named[1].strip('"')
        same = [each for each in found if each.index == wanted and wanted is not None]
        return same[0] if same else None

    def _configuration(self, module: str) -> Node:
        node = self.document["configuration"]["root_module"]
        for name in re.findall(r"module\.([^.\[]+)", module):
            node = node["module_calls"][name]["module"]
        return node


def _resources(module: Node) -> Iterator[Resource]:
    for node in module["resources"].items:
        if node["mode"].text in ("", "managed"):
            yield Resource(
                address=node["address"].text,
                module=module["address"].text,
                kind=node["type"].text,
                name=node["name"].text,
                index=node["index"].value,
                values=node["values"],
            )
    for child in module["child_modules"].items:
        yield from _resources(child)
