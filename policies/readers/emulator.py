"""Microsoft's Service Bus emulator: its `Config.json`.

Keys, and what the emulator takes for omitted ones, are those of its own schema
(Azure/azure-service-bus-emulator-installer, ServiceBus-Emulator/Schema/Config-schema.json). Limits
are Azure's: the emulator's own (one hour of TTL, ten deliveries, 50 entities) do not apply. Every
property that Azure has is taken, also those that the emulator does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from bridge.model.entity import MINUTE_MS, SECOND_MS, CorrelationFilter
from bridge.model.properties import names_of
from policies.readers import filters
from policies.readers.choice import of_one_namespace
from policies.readers.draft import EntityDraft, NamespaceDraft
from policies.readers.jsontext import Node
from policies.readers.reading import Notes, Reading

DEFAULTS: dict[str, object] = {
    "DefaultMessageTimeToLive": 60 * MINUTE_MS,
    "DuplicateDetectionHistoryTimeWindow": 20 * SECOND_MS,
    "LockDuration": MINUTE_MS,
    "MaxDeliveryCount": 3,
}
"""What the emulator takes for a property that is not there, where it differs from Azure."""

_RULE_KEYS = ("FilterType", "SqlFilter", "CorrelationFilter", "Action")
_CORRELATION_KEYS = (*filters.CORRELATION_FIELDS, "Properties")
_SQL_KEYS = ("SqlExpression", "CompatibilityLevel", "RequiresPreprocessing")


def is_this(document: Node) -> bool:
    """Whether a JSON document is a `Config.json`."""
    return "UserConfig" in document


def read_document(document: Node, source: str, *, namespace: str | None = None) -> Reading:
    """Return the namespace of a parsed `Config.json`; `namespace` says which, of several."""
    reader = _Reader(Notes(source), namespace)
    reader.document(document)
    return reader.draft.finish()


class _Reader:
    def __init__(self, notes: Notes, wanted: str | None) -> None:
        self._notes = notes
        self._wanted = wanted
        self.draft = NamespaceDraft(notes)

    def document(self, document: Node) -> None:
        if not self._is(document, "the document", dict):
            return
        self._only(document, ("UserConfig",))
        config = document["UserConfig"]
        if not self._is(config, "UserConfig", dict):
            return
        self._only(config, ("Namespaces", "Logging"))
        namespaces = self._list(config, "Namespaces")
        if not namespaces:
            self._notes.fault(
                config["Namespaces"].place, "Namespaces has 0 entries.", "It has one at least."
            )
        for namespace in of_one_namespace(
            self._notes,
            namespaces,
            lambda each: each["Name"].text,
            lambda each: each.place,
            self._wanted,
        )[:1]:
            self._namespace(namespace)

    def _namespace(self, node: Node) -> None:
        if not self._is(node, "a namespace", dict):
            return
        self._only(node, ("Name", "Queues", "Topics"))
        self.draft.name = self._name(node, "the namespace")
        for queue in self._list(node, "Queues"):
            self._queue(queue)
        for topic in self._list(node, "Topics"):
            self._topic(topic)

    def _queue(self, node: Node) -> None:
        if not self._is(node, "a queue", dict):
            return
        self._only(node, ("Name", "Properties"))
        if name := self._name(node, "a queue"):
            self._properties(self.draft.queue(name, node.place), node["Properties"])

    def _topic(self, node: Node) -> None:
        if not self._is(node, "a topic", dict):
            return
        self._only(node, ("Name", "Properties", "Subscriptions"))
        if not (name := self._name(node, "a topic")):
            return
        self._properties(self.draft.topic(name, node.place), node["Properties"])
        for subscription in self._list(node, "Subscriptions"):
            self._subscription(name, subscription)

    def _subscription(self, topic: str, node: Node) -> None:
        if not self._is(node, f"a subscription of {topic!r}", dict):
            return
        self._only(node, ("Name", "Properties", "Rules"))
        if not (name := self._name(node, f"a subscription of {topic!r}")):
            return
        draft = self.draft.subscription(topic, name, node.place)
        self._properties(draft, node["Properties"])
        for rule in self._list(node, "Rules"):
            self._rule(draft, rule)

    def _properties(self, draft: EntityDraft, node: Node) -> None:
        known = names_of(draft.kind)
        if node.value is not None and self._is(node, f"Properties of {draft.title}", dict):
            self._only(node, known)
            for name in known:
                if name in node:
                    draft.set(name, node[name].plain(), node[name].place)
        for key, value in DEFAULTS.items():
            if key in known:
                draft.set_default(key, value)

    def _rule(self, draft: EntityDraft, node: Node) -> None:
        if not self._is(node, f"a rule of {draft.path!r}", dict):
            return
        self._only(node, ("Name", "Properties"))
        name = self._name(node, f"a rule of {draft.path!r}")
        given = node["Properties"]
        if not name or not self._is(given, f"Properties of rule {name!r}", dict):
            return
        self._only(given, _RULE_KEYS)
        for key in ("SqlFilter", "CorrelationFilter", "Action"):
            self._is_or_absent(given[key], key, dict)
            self._is_or_absent(given[key]["SqlExpression"], "SqlExpression", str)
        self._only(given["Action"], _SQL_KEYS)
        action = given["Action"]["SqlExpression"].text
        kind = given["FilterType"].text
        match kind.removesuffix("Filter").lower():
            case "sql":
                self._only(given["SqlFilter"], _SQL_KEYS)
                expression = given["SqlFilter"]["SqlExpression"].text
                found = filters.sql(expression) if expression else None
                filters.add_rule(draft, name, found, action, given["SqlFilter"].place)
            case "correlation":
                filters.add_rule(
                    draft, name, self._correlation(given["CorrelationFilter"]), action, given.place
                )
            case _:
                self._notes.fault(
                    given["FilterType"].place,
                    f"{draft.title}, rule {name!r}: FilterType is {kind!r}.",
                    "It is Sql or Correlation.",
                )

    def _correlation(self, node: Node) -> CorrelationFilter:
        self._only(node, _CORRELATION_KEYS)
        fields = {key: node[key].text for key in filters.CORRELATION_FIELDS}
        for key in filters.CORRELATION_FIELDS:
            self._is_or_absent(node[key], key, str)
        self._is_or_absent(node["Properties"], "Properties", dict)
        properties = {}
        for key, member in node["Properties"].members.items():
            if isinstance(member.value, dict | list) or member.value is None:
                self._notes.fault(
                    member.place,
                    f"The property {key!r} of a correlation filter is {member.kind}.",
                    "It is a text, a number or a boolean.",
                )
            else:
                properties[key] = member.plain()
        return filters.correlation(fields, properties)

    def _name(self, node: Node, what: str) -> str:
        if node["Name"].text:
            return node["Name"].text
        self._notes.fault(node.place, f"{what[0].upper()}{what[1:]} has no Name.", "Give it one.")
        return ""

    def _list(self, node: Node, key: str) -> list[Node]:
        self._is_or_absent(node[key], key, list)
        return node[key].items

    def _is_or_absent(self, node: Node, what: str, kind: type) -> None:
        if node.value is not None:
            self._is(node, what, kind)

    def _is(self, node: Node, what: str, kind: type) -> bool:
        if isinstance(node.value, kind):
            return True
        expected = {"dict": "an object", "list": "an array", "str": "a string"}[kind.__name__]
        self._notes.fault(
            node.place, f"{what[0].upper()}{what[1:]} is {node.kind}.", f"It must be {expected}."
        )
        return False

    def _only(self, node: Node, known: Iterable[str]) -> None:
        known = tuple(known)
        lower = {name.lower() for name in known}
        for key, member in node.members.items():
            if key.lower() in lower or key.startswith("$"):
                continue
            near = get_close_matches(key, known, n=1, cutoff=0.6)
            remedy = f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(known)}."
            self._notes.fault(member.place, f"The key {key!r} is not known here.", remedy)
