"""Service Bus Explorer's export: its XML of queues, topics, subscriptions and rules.

Elements are the properties of the first .NET client's description classes; durations are .NET's
TimeSpan. The tool's own losses are findings: it writes sizes above 5 GB as 1 GB, an empty
`Filter` for a True or False filter, and correlation properties without their types
(paolosalvatori/ServiceBusExplorer, ImportExportHelper.cs).
"""

from __future__ import annotations

from dataclasses import replace

from bridge.model import entity as model
from bridge.model.name import DEFAULT_RULE_NAME, same_name
from bridge.model.properties import READ_ONLY
from bridge.wire.atom.xml import Element
from policies.readers import filters, xmltext
from policies.readers.draft import EntityDraft, NamespaceDraft
from policies.readers.listing import QUEUES, TOPICS, Listing
from policies.readers.reading import Notes, Reading
from policies.readers.xmltext import place_of

NAMESPACE = "http://schemas.microsoft.com/servicebusexplorer"

_NAMES = {
    "EnableDeadLetteringOnMessageExpiration": "DeadLetteringOnMessageExpiration",
    "EnableDeadLetteringOnFilterEvaluationExceptions": "DeadLetteringOnFilterEvaluationExceptions",
    "EnableFilteringMessagesBeforePublishing": "FilteringMessagesBeforePublishing",
}
"""The first .NET client's names where they differ from Azure's."""

_IGNORED = READ_ONLY | {
    "EnableSubscriptionPartitioning",
    "IsAnonymousAccessible",
    "Name",
    "Path",
    "Rules",
    "Subscriptions",
    "SupportOrdering",
    "TopicPath",
}
_OTHER_LISTS = ("Relays", "EventHubs", "NotificationHubs")


def is_this(roots: list[Element]) -> bool:
    """Whether an XML document is an export of Service Bus Explorer."""
    return len(roots) == 1 and roots[0].name == "Entities"


def read_documents(roots: list[Element], source: str) -> Reading:
    """Return the namespace of a parsed export."""
    notes = Notes(source)
    draft = NamespaceDraft(notes)
    root = roots[0]
    name = root.attributes.get("serviceBusNamespace", "")
    draft.name = "" if name == "Unknown" else name.split(".")[0]
    for queue in _children(root, "Queues"):
        if path := _required(notes, queue, "Path"):
            _properties(draft.queue(path, place_of(queue)), queue)
    for topic in _children(root, "Topics"):
        if path := _required(notes, topic, "Path"):
            _properties(draft.topic(path, place_of(topic)), topic)
            for subscription in _children(topic, "Subscriptions"):
                if subscription_name := _required(notes, subscription, "Name"):
                    each = draft.subscription(path, subscription_name, place_of(subscription))
                    _properties(each, subscription)
                    for rule in _children(subscription, "Rules"):
                        _rule(each, rule)
    for other in _OTHER_LISTS:
        for element in _children(root, other):
            notes.finding(
                place_of(element),
                element.text_of("Path"),
                other,
                f"{other} are no part of Service Bus messaging; {element.text_of('Path')!r} is "
                "left out.",
            )
    return replace(draft.finish(), listing=_listing(root))


def _listing(root: Element) -> Listing:
    """Return the lists of an export; a topic's element holds the list of its subscriptions."""
    lists = {QUEUES} if root.find("Queues") else set()
    if topics := root.find("Topics"):
        lists |= {TOPICS, *(topic.text_of("Path").lower() for topic in topics.children)}
    return Listing(kinds=frozenset(lists))


def _children(parent: Element, name: str) -> list[Element]:
    found = parent.find(name)
    return found.children if found else []


def _required(notes: Notes, element: Element, name: str) -> str:
    text = element.text_of(name)
    if not text:
        notes.fault(place_of(element), f"A {element.name} has no {name}.", "Give it one.")
    return text


def _properties(draft: EntityDraft, element: Element) -> None:
    xmltext.set_properties(draft, element, ignored=_IGNORED, renamed=_NAMES)
    if element.text_of("EnablePartitioning").lower() == "true":
        draft.notes.finding(
            place_of(element),
            draft.path,
            "MaxSizeInMegabytes",
            f"{draft.title} is partitioned: the export writes sizes above 5 GB as 1 GB. Check it.",
            grade="approximate",
        )


def _rule(draft: EntityDraft, element: Element) -> None:
    name = _required(draft.notes, element, "Name")
    if not name:
        return
    action = element.raw_of("Action", "SqlRuleAction", "SqlExpression")
    found = next(iter(_children(element, "Filter")), None)
    if found is None:
        filters.add_rule(draft, name, model.TrueFilter(), action, place_of(element))
        if not same_name(name, DEFAULT_RULE_NAME):
            draft.notes.finding(
                place_of(element),
                draft.path,
                f"Rule {name}",
                f"{draft.title}, rule {name!r}: the export writes True and False filters alike; "
                "it is taken as a True filter. Check it.",
                grade="approximate",
            )
        return
    if found.name == "CorrelationFilter":
        fields = {field: found.raw_of(field) for field in filters.CORRELATION_FIELDS}
        given: dict[str, object] = {}
        for each in _children(found, "Properties"):
            key, _, value = each.text.partition(":")
            given[key.strip()] = value.removeprefix(" ")
        filters.add_rule(draft, name, filters.correlation(fields, given), action, place_of(found))
        if given:
            draft.notes.finding(
                place_of(found),
                draft.path,
                f"Rule {name}",
                f"{draft.title}, rule {name!r}: the export leaves the types of properties out; "
                "they are compared as texts.",
                grade="approximate",
            )
        return
    expression = found.raw_of("SqlExpression")
    sql = filters.sql(expression) if expression else None
    filters.add_rule(draft, name, sql, action, place_of(found))
