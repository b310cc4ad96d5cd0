"""The ATOM XML of a live namespace: what its management API answers, feeds and entries.

One text may hold several answers one after another: the feeds of queues and topics, of each
topic's subscriptions and of their rules. Element names and namespaces: the administration clients
of the Azure SDKs.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from bridge.model import entity as model
from policies.errors import Place
from policies.readers import access, filters, values, xmltext
from policies.readers.draft import EntityDraft, NamespaceDraft
from policies.readers.properties import READ_ONLY, names_of
from policies.readers.reading import Notes, Reading
from policies.readers.xmltext import Element

ATOM = "http://www.w3.org/2005/Atom"

_IGNORED = READ_ONLY | {
    "AuthorizationRules",
    "ClientAffineProperties",
    "DefaultRuleDescription",
    "EnableSubscriptionPartitioning",
    "IsAnonymousAccessible",
    "IsClientAffine",
    "SupportOrdering",
}
_RULE_PATH = re.compile(r"(.+)/subscriptions/([^/]+)/rules/([^/]+)", re.IGNORECASE)
_SUBSCRIPTION_PATH = re.compile(r"(.+)/subscriptions/([^/]+)", re.IGNORECASE)


def is_this(roots: list[Element]) -> bool:
    """Whether XML documents are ATOM feeds or entries."""
    return bool(roots) and all(
        root.name in ("feed", "entry") and root.namespace == ATOM for root in roots
    )


def read(text: str, source: str) -> Reading:
    """Return the namespace that ATOM feeds and entries describe.

    Raises:
        ReadError: with every fault of the text.
    """
    return read_documents(xmltext.parse(text, source), source)


def read_documents(roots: list[Element], source: str) -> Reading:
    """Return the namespace of parsed ATOM documents."""
    reader = _Reader(Notes(source))
    for root in roots:
        for entry in [root] if root.name == "entry" else root.all("entry"):
            reader.entry(entry)
    return reader.finish()


class _Reader:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._draft = NamespaceDraft(notes)
        self._rules: list[tuple[Element, str, str, str]] = []

    def entry(self, entry: Element) -> None:
        content = entry.find("content")
        description = content.children[0] if content and content.children else None
        if description is None:
            self._notes.fault(
                entry.place, "An entry without a description.", "Remove it, or ask for it again."
            )
            return
        path = self._path(entry)
        match description.name:
            case "QueueDescription":
                self._properties(self._draft.queue(path, entry.place), description)
            case "TopicDescription":
                self._properties(self._draft.topic(path, entry.place), description)
            case "SubscriptionDescription":
                if match := _SUBSCRIPTION_PATH.fullmatch(path):
                    draft = self._draft.subscription(match[1], match[2], entry.place)
                    self._properties(draft, description)
                else:
                    self._no_id(entry, "subscription")
            case "RuleDescription":
                if match := _RULE_PATH.fullmatch(path):
                    self._rules.append((description, match[1], match[2], match[3]))
                else:
                    self._no_id(entry, "rule")
            case "NamespaceInfo":
                self._draft.name = description.text_of("Name")
                self._tier(description)
            case other:
                self._notes.finding(
                    description.place, path, other, f"{other} is nothing that RabbitMQ gets."
                )

    def finish(self) -> Reading:
        for description, topic, subscription, name in self._rules:
            draft = self._draft.owner_of_rule(topic, subscription, name, description.place)
            _rule(draft, description, description.text_of("Name") or name)
        self._draft.note_missing_rules("Append the feeds .../subscriptions/<name>/rules.")
        return self._draft.finish()

    def _path(self, entry: Element) -> str:
        """The path in the entry's id, without host and query; else the title."""
        path = re.sub(r"^[A-Za-z][\w+.-]*://[^/]*/", "", entry.text_of("id")).split("?")[0]
        return unquote(path).strip("/") or entry.text_of("title")

    def _no_id(self, entry: Element, what: str) -> None:
        self._notes.fault(
            entry.place,
            f"The entry of a {what} has no id that says where it belongs.",
            f"Use the answer of a GET; its id is the URL of the {what}.",
        )

    def _tier(self, description: Element) -> None:
        sku = description.text_of("MessagingSKU")
        for tier in model.Tier:
            if sku.lower() == tier.value.lower():
                self._draft.tier = tier

    def _properties(self, draft: EntityDraft, description: Element) -> None:
        known = names_of(draft.kind)
        for child in description.children:
            if child.name in known:
                draft.set(child.name, child.text, child.place)
            elif child.name not in _IGNORED:
                draft.notes.finding(
                    child.place,
                    draft.path,
                    child.name,
                    f"{draft.title}: {child.name} is not known; it is left out.",
                )
        if description.text_of("IsClientAffine").lower() == "true":
            draft.notes.finding(
                description.place,
                draft.path,
                "IsClientAffine",
                f"{draft.title} is scoped to a JMS client; here every client sees it.",
            )
        for rule in (each for each in description.children if each.name == "AuthorizationRules"):
            for each in rule.children:
                _access_rule(draft, each)
        default_rule = description.find("DefaultRuleDescription")
        if default_rule is not None:
            _rule(draft, default_rule, default_rule.text_of("Name") or "$Default")


def _access_rule(draft: EntityDraft, element: Element) -> None:
    rights = element.find("Rights") or element.find("AccessRights")
    access.add(
        draft.notes,
        draft.path,
        draft.authorization_rules,
        element.place,
        name=element.text_of("KeyName"),
        rights=[each.text.strip() for each in rights.children] if rights else [],
        primary_key=element.text_of("PrimaryKey"),
        secondary_key=element.text_of("SecondaryKey"),
    )


def _rule(draft: EntityDraft, description: Element, name: str) -> None:
    found = description.find("Filter")
    action = description.raw_of("Action", "SqlExpression")
    place = description.place
    if found is None:
        filters.add_rule(draft, name, model.TrueFilter(), action, place)
        return
    match found.type:
        case "TrueFilter":
            filters.add_rule(draft, name, model.TrueFilter(), action, place)
        case "FalseFilter":
            filters.add_rule(draft, name, model.FalseFilter(), action, place)
        case "CorrelationFilter":
            fields = {field: found.raw_of(field) for field in filters.CORRELATION_FIELDS}
            given = dict(_typed_values(found.find("Properties"), draft))
            filters.add_rule(draft, name, filters.correlation(fields, given), action, place)
        case "SqlFilter":
            given = dict(_typed_values(found.find("Parameters"), draft))
            expression = found.raw_of("SqlExpression")
            sql = filters.sql(expression, tuple(given.items())) if expression else None
            filters.add_rule(draft, name, sql, action, place)
        case other:
            draft.notes.fault(
                found.place,
                f"{draft.title}, rule {name!r}: its filter is of the type {other!r}.",
                "It is TrueFilter, FalseFilter, SqlFilter or CorrelationFilter.",
            )


def _typed_values(parent: Element | None, draft: EntityDraft) -> list[tuple[str, object]]:
    found = []
    for pair in parent.children if parent else []:
        value = pair.find("Value")
        if value is not None:
            kind = value.type or "string"
            try:
                found.append((pair.text_of("Key"), typed_value(kind, value.text)))
            except ValueError as error:
                _bad_value(draft, pair.text_of("Key"), value.place, value.text, kind, error)
    return found


def _bad_value(
    draft: EntityDraft, key: str, place: Place, text: str, kind: str, error: ValueError
) -> None:
    draft.notes.fault(
        place, f"{draft.title}: the value {text!r} of {key!r} is no {kind};", f"{error}."
    )


def typed_value(kind: str, text: str) -> object:
    """Return the value of a text of one of the schema types that Service Bus writes."""
    match kind:
        case "string":
            return text
        case "int" | "long":
            return values.integer(text)
        case "boolean":
            return values.boolean(text)
        case "double" | "float" | "decimal":
            return float(text)
        case "dateTime":
            moment = datetime.fromisoformat(text.strip())
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        case "duration":
            return timedelta(milliseconds=values.duration_ms(text))
    raise ValueError("known types are string, int, long, boolean, double, dateTime and duration")
