"""Microsoft's Service Bus emulator: its `Config.json`.

Keys, and the defaults of omitted ones, are those of the emulator's schema
(Azure/azure-service-bus-emulator-installer, ServiceBus-Emulator/Schema/Config-schema.json). Limits
are Azure's: the emulator's own (one hour of TTL, ten deliveries, 50 entities) do not apply. Every
property of Azure is read, also one that the emulator does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from bridge.model.entity import MINUTE_MS, SECOND_MS, CorrelationFilter
from bridge.model.properties import EntityKind, names_of
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

_SQL = {"SqlExpression": str, "CompatibilityLevel": object, "RequiresPreprocessing": object}
_RULE = {
    "FilterType": object,
    "SqlFilter": _SQL,
    "CorrelationFilter": {**dict.fromkeys(filters.CORRELATION_FIELDS, str), "Properties": dict},
    "Action": _SQL,
}


def _entity(kind: EntityKind) -> dict[str, object]:
    return {"Name": object, "Properties": dict.fromkeys(names_of(kind), object)}


_SUBSCRIPTION = {
    **_entity(EntityKind.SUBSCRIPTION),
    "Rules": [{"Name": object, "Properties": _RULE}],
}
_NAMESPACE = {
    "Name": object,
    "Queues": [_entity(EntityKind.QUEUE)],
    "Topics": [{**_entity(EntityKind.TOPIC), "Subscriptions": [_SUBSCRIPTION]}],
}
"""The schema: the keys of an object, what an array is of, else the type of a value."""

_TITLES: dict[type, str] = {dict: "an object", list: "an array", str: "a string"}
_DOCUMENT = {"UserConfig": {"Namespaces": [dict], "Logging": object}}


def is_this(document: Node) -> bool:
    """Whether a JSON document is a `Config.json`."""
    return "UserConfig" in document


def read_document(document: Node, source: str, *, namespace: str | None = None) -> Reading:
    """Return the namespace of a parsed `Config.json`; `namespace` names one of several."""
    reader = _Reader(Notes(source))
    reader.document(document, namespace)
    return reader.draft.finish()


class _Reader:
    """Reads a document; a value of the wrong type counts as absent, and is a fault."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.draft = NamespaceDraft(notes)

    def document(self, document: Node, wanted: str | None) -> None:
        namespaces = document["UserConfig"]["Namespaces"]
        if document.members and not namespaces.items:
            self._notes.fault(namespaces.place, "Namespaces has 0 entries.", "It has one at least.")
        chosen = of_one_namespace(
            self._notes,
            namespaces.items,
            lambda each: each["Name"].text,
            lambda each: each.place,
            wanted,
        )
        for namespace in chosen[:1]:
            self._namespace(namespace)
            self._check(namespace, _NAMESPACE, "a namespace")
        self._check(document, _DOCUMENT, "the document")

    def _namespace(self, node: Node) -> None:
        self.draft.name = self._name(node, "the namespace")
        for queue in node["Queues"].items:
            if name := self._name(queue, "a queue"):
                self._properties(self.draft.queue(name, queue.place), queue["Properties"])
        for topic in node["Topics"].items:
            if name := self._name(topic, "a topic"):
                self._properties(self.draft.topic(name, topic.place), topic["Properties"])
                for subscription in topic["Subscriptions"].items:
                    self._subscription(name, subscription)

    def _subscription(self, topic: str, node: Node) -> None:
        if name := self._name(node, f"a subscription of {topic!r}"):
            draft = self.draft.subscription(topic, name, node.place)
            self._properties(draft, node["Properties"])
            for rule in node["Rules"].items:
                if rule_name := self._name(rule, f"a rule of {draft.path!r}"):
                    self._rule(draft, rule_name, rule["Properties"])

    def _properties(self, draft: EntityDraft, node: Node) -> None:
        for name in names_of(draft.kind):
            if name in node:
                draft.set(name, node[name].plain(), node[name].place)
            if name in DEFAULTS:
                draft.set_default(name, DEFAULTS[name])

    def _rule(self, draft: EntityDraft, name: str, given: Node) -> None:
        action = given["Action"]["SqlExpression"].text
        kind = given["FilterType"].text
        match kind.removesuffix("Filter").lower():
            case "sql":
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
        fields = {key: node[key].text for key in filters.CORRELATION_FIELDS}
        return filters.correlation(fields, properties)

    def _name(self, node: Node, what: str) -> str:
        if isinstance(node.value, dict) and not node["Name"].text:
            message = f"{what[0].upper()}{what[1:]} has no Name."
            self._notes.fault(node.place, message, "Give it one.")
        return node["Name"].text

    def _check(self, node: Node, form: object, what: str) -> None:
        """Note a fault for each key and type that is not in the schema; null counts as absent."""
        kind = form if isinstance(form, type) else type(form)
        if not isinstance(node.value, kind):
            message = f"{what[0].upper()}{what[1:]} is {node.kind}."
            self._notes.fault(node.place, message, f"It must be {_TITLES[kind]}.")
        elif isinstance(form, list):
            for item in node.items:
                self._check(item, form[0], f"a {what.lower().removesuffix('s')}")
        elif isinstance(form, dict):
            self._check_keys(node, form)
            for key, own in form.items():
                if node[key].value is not None:
                    self._check(node[key], own, key)

    def _check_keys(self, node: Node, known: Mapping[str, object]) -> None:
        lower = {name.lower() for name in known}
        for key, member in node.members.items():
            if key.lower() in lower or key.startswith("$"):
                continue
            near = get_close_matches(key, known, n=1, cutoff=0.6)
            remedy = f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(known)}."
            self._notes.fault(member.place, f"The key {key!r} is not known here.", remedy)
