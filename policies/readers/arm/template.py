"""The resources of a template: loops unrolled, children lifted, nested deployments entered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from policies.errors import Position
from policies.readers.arm.evaluation import Scope
from policies.readers.arm.parameters import refused_parameters
from policies.readers.arm.unresolved import is_unresolved, reason, unresolved
from policies.readers.jsontext import Node

PROVIDER = "microsoft.servicebus/"
NAMESPACES = "microsoft.servicebus/namespaces"
_IS_NAMESPACE = re.compile(r"(?:.*/)?microsoft\.servicebus/namespaces(?:/[^/]+)?", re.IGNORECASE)
RULES = "namespaces/topics/subscriptions/rules"
DEPLOYMENT = "microsoft.resources/deployments"

Note = Callable[[Position, str, str], None]
"""Takes the place, the kind of thing, and what could not be taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of Service Bus.

    Attributes:
        kind: the type below the provider, in lower case: `namespaces/topics/subscriptions`.
        names: a name for each segment of the type.
        written: the whole name as the template has it.
        body: the resource, evaluated.
        is_existing: the template only refers to the resource.
        unknown: why the length of the resource's loop is not known; "" outside such a loop.
    """

    kind: str
    names: tuple[str, ...]
    written: str
    body: Node
    is_existing: bool = False
    unknown: str = ""


@dataclass(slots=True)
class Template:
    """A template with the values of its parameters."""

    scope: Scope
    note: Note
    parent: Template | None = None
    _deployments: dict[str, Template | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        root: Node,
        given: Mapping[str, object],
        note: Note,
        parent: Template | None = None,
    ) -> Template:
        """Return the template of a document, or of a deployment in the template `parent`."""
        template = cls(Scope(root, given), note, parent)
        template.scope.state_of = template.state_of
        for place, message in refused_parameters(template.scope):
            note(place, "parameters", message)
        return template

    def resources(self) -> Iterator[Resource]:
        """Yield every resource of Service Bus, those of nested deployments too.

        From a loop of unknown length, only the rules of its first turn come, with `unknown` set.
        """
        yield from self._below(self.scope.template["resources"], self.scope, "", ())

    def outputs(self) -> dict[str, object]:
        """Return the values of the template's outputs."""
        return {
            name: self.scope.evaluate(output["value"]).plain()
            for name, output in self.scope.template["outputs"].members.items()
        }

    def state_of(self, which: str) -> object:
        """Return the value of `reference()` for an id or symbolic name; `None` if not known.

        Known are the outputs of a nested deployment, and name, location and SKU of a namespace.
        """
        name = which.rpartition("/")[2]
        if name not in self._deployments:
            self._deployments[name] = None
            self._deployments[name] = self._find_deployment(name)
        nested = self._deployments[name]
        if nested is not None:
            return {"outputs": {key: {"value": each} for key, each in nested.outputs().items()}}
        declared = self.scope.template["resources"][which]
        kind = declared["type"].text
        if not _IS_NAMESPACE.fullmatch(kind or which):
            return None
        wanted = self.scope.evaluate(declared["name"]).text if kind else name
        made = list(self._namespaces())
        for node in made:
            if wanted and node["name"].text.lower() == wanted.lower():
                return node.plain()
        if len(made) == 1 and not (wanted and made[0]["name"].text):
            return made[0].plain()  # a name is not known, but there is one namespace only
        return None

    def _namespaces(self) -> Iterator[Node]:
        """Yield name, location and SKU of each namespace, here and in outer templates."""
        for _, node in _entries(self.scope.template["resources"]):
            if node["type"].text.lower() == NAMESPACES and node["existing"].value is not True:
                wanted = ("name", "location", "sku")
                body = {key: each for key, each in node.members.items() if key.lower() in wanted}
                yield self.scope.evaluate(Node(body, node.place))
        if self.parent is not None:
            yield from self.parent._namespaces()

    def _find_deployment(self, name: str) -> Template | None:
        resources = self.scope.template["resources"]
        for key, node in _entries(resources):
            if node["type"].text.lower() != DEPLOYMENT or node["copy"].value is not None:
                continue
            if name in (key, self.scope.evaluate(node["name"]).text):
                return self._nested(node, self.scope)
        return None

    def _below(
        self, parent: Node, scope: Scope, kind: str, names: tuple[str, ...]
    ) -> Iterator[Resource]:
        for _, node in _entries(parent):
            loop = node["copy"]
            if not loop.members:
                yield from self._one(node, scope, kind, names)
                continue
            name = scope.evaluate(loop["name"]).text
            turns = scope.turns(loop)
            if isinstance(turns, str):
                self.note(loop.place, "Loop", f"A loop is left out: {reason(turns)}.")
                silent = replace(self, note=lambda *_: None)
                for each in silent._one(node, scope.in_loop(name, 0), kind, names):
                    if each.kind == RULES:
                        yield replace(each, unknown=reason(turns))
                continue
            for turn in range(turns):
                yield from self._one(node, scope.in_loop(name, turn), kind, names)

    def _one(
        self, node: Node, scope: Scope, parent_kind: str, parent_names: tuple[str, ...]
    ) -> Iterator[Resource]:
        own_kind = node["type"].text
        if not self._is_deployed(node, scope):
            return
        if own_kind.lower() == DEPLOYMENT:
            nested = self._nested(node, scope)
            if nested is not None:
                yield from nested.resources()
            return
        is_child = parent_kind and not own_kind.lower().startswith(PROVIDER)
        kind = f"{parent_kind}/{own_kind}".lower() if is_child else own_kind.lower()
        if not kind.startswith(PROVIDER):
            yield from self._below(node["resources"], scope, kind, ())
            return
        whole = str(scope.evaluate(node["name"]).plain() or "")
        names = tuple(whole.split("/"))
        if is_child and len(names) == len(own_kind.split("/")):
            names = parent_names + names
        segments = kind.removeprefix(PROVIDER).split("/")
        if len(names) != len(segments):
            self.note(
                node["name"].place,
                "name",
                f"A resource of the type {own_kind!r} is left out: its name "
                f"{_shown(whole)} has {len(names)} parts, its type {len(segments)}.",
            )
            return
        own = {k: v for k, v in node.members.items() if k.lower() not in ("resources", "copy")}
        body = scope.evaluate(Node({**own}, node.place))
        yield Resource(
            kind="/".join(segments),
            names=names,
            written=node["name"].text,
            body=body,
            is_existing=node["existing"].value is True,
        )
        yield from self._below(node["resources"], scope, kind, names)

    def _is_deployed(self, node: Node, scope: Scope) -> bool:
        if node["condition"].value is None:
            return True
        condition = scope.evaluate(node["condition"]).plain()
        if is_unresolved(condition):
            self.note(
                node["condition"].place,
                "condition",
                f"Whether this is deployed is not known ({reason(condition)}); it is taken as "
                "deployed.",
            )
            return True
        return condition is True or str(condition).lower() == "true"

    def _nested(self, node: Node, scope: Scope) -> Template | None:
        properties = node["properties"]
        template = properties["template"]
        if not template.members:
            link = scope.evaluate(properties["templateLink"]).plain()
            if link is not None:
                self.note(
                    properties["templateLink"].place,
                    "templateLink",
                    "A linked template is left out: it is not in the input. Give its file.",
                )
            return None
        scope_kind = properties["expressionEvaluationOptions"]["scope"].text.lower()
        if scope_kind != "inner":
            inner = Template(
                Scope(template, scope.given, scope.loops, scope.locals), self.note, self
            )
            inner.scope.state_of = self.state_of
            outer = {key: scope.template[key] for key in ("parameters", "variables")}
            own = {key: each for key, each in template.members.items() if key.lower() not in outer}
            inner.scope.template = Node(own | outer, template.place)
            return inner
        given = {
            name: _parameter(name, scope.evaluate(each))
            for name, each in properties["parameters"].members.items()
        }
        return Template.of(template, given, self.note, self)


def _parameter(name: str, given: Node) -> object:
    if "reference" in given:
        return unresolved(f"the parameter {name!r} is a secret in a key vault")
    return given.plain() if is_unresolved(given.value) else given["value"].plain()


def _entries(resources: Node) -> Iterator[tuple[str, Node]]:
    """Yield each resource with its symbolic name (`languageVersion` 2.0); "" in an array."""
    yield from resources.members.items()
    yield from (("", item) for item in resources.items)


def _shown(name: str) -> str:
    return f"({reason(name)})" if is_unresolved(name) else repr(name)
