"""Entities of a remote namespace as its administration API describes them.

A description is kept as it came, so that what this version does not know is not lost when an entity
is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from bridge.model import entity as model
from bridge.model.counts import Counts
from bridge.model.properties import PROPERTIES, READ_ONLY, EntityKind
from bridge.wire.atom.access import AccessRule, read_access_rule
from bridge.wire.atom.descriptions import ELEMENTS, NEVER, read_rule
from bridge.wire.atom.rules import action_node, filter_node
from bridge.wire.atom.writing import COUNTS, INSTANCE, NAMESPACES, XmlElement
from bridge.wire.atom.xml import Element

_PREFIXES = {INSTANCE: "i", COUNTS: "d2p1"}


@dataclass(frozen=True)
class RemoteEntity:
    """A queue, a topic, a subscription or a rule, with what the service counts of it.

    Attributes:
        kind: `Queue`, `Topic`, `Subscription` or `Rule`.
        names: its name; a topic's, a subscription's and a rule's for what is below a topic.
        description: the element that describes it.
    """

    kind: str
    names: tuple[str, ...]
    description: Element

    @property
    def name(self) -> str:
        """The entity's own name."""
        return self.names[-1]

    @property
    def path(self) -> str:
        """The path as Azure writes it: `events/Subscriptions/audit/Rules/red`."""
        steps = ("", "/Subscriptions/", "/Rules/")
        return "".join(f"{step}{name}" for step, name in zip(steps, self.names, strict=False))

    @property
    def status(self) -> str:
        """The entity's status, such as `Active`."""
        return self.description.text_of("Status")

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """The texts of all elements that are properties, by Azure's names, in Azure's order."""
        return {
            child.name: child.text.strip()
            for child in self.description.children
            if child.name in PROPERTIES and not child.is_nil
        }

    @cached_property
    def counts(self) -> Counts:
        """The counts of its messages; 0 for what the service does not count."""

        def count(*names: str) -> int:
            text = self.description.text_of(*names)
            return int(text) if text.lstrip("-").isdecimal() else 0

        def detail(name: str) -> int:
            return max(0, count("CountDetails", f"{name}MessageCount"))

        return Counts(
            active=detail("Active"),
            dead_letter=detail("DeadLetter"),
            scheduled=detail("Scheduled"),
            transfer=detail("Transfer"),
            transfer_dead_letter=detail("TransferDeadLetter"),
            size_bytes=count("SizeInBytes"),
        )

    def time(self, name: str) -> str | None:
        """Return the text of CreatedAt, UpdatedAt or AccessedAt; `None` for never."""
        text = self.description.text_of(name)
        return None if not text or text.startswith(NEVER[:10]) else text

    @property
    def access_rules(self) -> list[AccessRule]:
        """The shared access rules of the entity."""
        found = self.description.find("AuthorizationRules")
        return [read_access_rule(each) for each in found.children] if found else []

    @property
    def rule(self) -> model.Rule:
        """What a rule says.

        Raises:
            ServiceBusError: it is none that the bridge knows.
        """
        return read_rule(self.description, self.name)

    def changed(self, given: Mapping[str, str]) -> XmlElement:
        """Return the description with other texts of properties, by Azure's names."""
        nodes = {
            child.name: _node(child)
            for child in self.description.children
            if child.name not in READ_ONLY
        }
        nodes |= {name: XmlElement(name, text) for name, text in given.items()}
        return _description(EntityKind(self.kind), nodes)


def entity_node(kind: EntityKind, given: Mapping[str, str]) -> XmlElement:
    """Return the description of a new entity: the texts of its properties, by Azure's names."""
    return _description(kind, {name: XmlElement(name, text) for name, text in given.items()})


def rule_node(rule: model.Rule) -> XmlElement:
    """Return the description of a rule."""
    children = (
        filter_node(rule.filter),
        action_node(rule.action, rule.action_parameters),
        XmlElement("Name", rule.name),
    )
    return XmlElement("RuleDescription", children=children, attributes=NAMESPACES)


def _description(kind: EntityKind, nodes: Mapping[str, XmlElement]) -> XmlElement:
    """Return a description with its elements in the order that the service wants."""
    known = [name for name in ELEMENTS[kind] if name in nodes]
    unknown = [name for name in nodes if name not in known]
    children = tuple(nodes[name] for name in known + unknown)
    return XmlElement(f"{kind.value}Description", children=children, attributes=NAMESPACES)


def _node(element: Element) -> XmlElement:
    """Return an element that was read, to be written again."""
    attributes: dict[str, str] = {}
    for qualified, value in element.attributes.items():
        uri, _, name = qualified.rpartition(" ")
        attributes[f"{_PREFIXES[uri]}:{name}" if uri in _PREFIXES else name] = value
    children = tuple(map(_node, element.children))
    return XmlElement(element.name, "" if children else element.text, children, attributes)
