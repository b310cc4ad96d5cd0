"""The ATOM XML of a live namespace: feeds and entries from its management API.

One text may hold several answers one after another: the feeds of queues and topics, of each
topic's subscriptions and of their rules. A feed's entries and its id (without one its title) say
which list the feed is. Element names and namespaces: the administration clients of the Azure SDKs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

from bridge.model.name import DEFAULT_RULE_NAME
from bridge.model.properties import READ_ONLY
from bridge.wire.atom.errors import DescriptionError
from bridge.wire.atom.rules import read_action, read_filter
from bridge.wire.atom.writing import ATOM
from bridge.wire.atom.xml import Element
from policies.readers import filters, xmltext
from policies.readers.draft import EntityDraft, NamespaceDraft
from policies.readers.listing import QUEUES, TOPICS, Listing
from policies.readers.reading import Notes, Reading
from policies.readers.xmltext import place_of

_IGNORED = READ_ONLY | {
    "ClientAffineProperties",
    "DefaultRuleDescription",
    "EnableSubscriptionPartitioning",
    "IsAnonymousAccessible",
    "IsClientAffine",
    "SupportOrdering",
}
_RULE_PATH = re.compile(r"(.+)/subscriptions/([^/]+)/rules/([^/]+)", re.IGNORECASE)
_SUBSCRIPTION_PATH = re.compile(r"(.+)/subscriptions/([^/]+)", re.IGNORECASE)
_SUBSCRIPTIONS_PATH = re.compile(r"([^?]+)/subscriptions", re.IGNORECASE)
_LISTS = {
    "$resources/queues": QUEUES,
    "$resources/topics": TOPICS,
    "queues": QUEUES,
    "topics": TOPICS,
}
_RULES = re.compile(r"rules|.+/rules", re.IGNORECASE)


def is_this(roots: list[Element]) -> bool:
    """Whether XML documents are ATOM feeds or entries."""
    return bool(roots) and all(
        root.name in ("feed", "entry") and root.namespace == ATOM for root in roots
    )


def read_documents(roots: list[Element], source: str) -> Reading:
    """Return the namespace of parsed ATOM documents."""
    reader = _Reader(Notes(source))
    for root in roots:
        if root.name == "feed":
            reader.feed(root)
        else:
            reader.entry(root)
    return reader.finish()


class _Reader:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._draft = NamespaceDraft(notes)
        self._rules: list[tuple[Element, str, str, str]] = []
        self._listing = Listing()

    def feed(self, feed: Element) -> None:
        """Take all entries of a feed, and note which lists the feed has in full."""
        entries = feed.all("entry")
        for entry in entries:
            self.entry(entry)
        kinds = {kind for entry in entries for kind in self._kinds_of(entry)}
        path = self._path(feed).lower()
        if match := _SUBSCRIPTIONS_PATH.fullmatch(path):
            kinds.add(match[1])
        elif path in _LISTS:
            kinds.add(_LISTS[path])
        is_of_any = bool(kinds or entries or _RULES.fullmatch(path))
        found = Listing(kinds=frozenset(kinds), empty=0 if is_of_any else 1)
        self._listing = found.joined(self._listing)
        for link in feed.all("link"):
            if link.attributes.get("rel") == "next":
                self._notes.leave_out(
                    place_of(link),
                    "",
                    "link",
                    "The feed goes on at its next link. Append what is there, and take it out.",
                )

    def _kinds_of(self, entry: Element) -> Iterator[str]:
        """Yield the lists that are complete when the feed of this entry is."""
        content = entry.find("content")
        path = self._path(entry)
        for description in content.children if content else []:
            match description.name:
                case "QueueDescription":
                    yield QUEUES
                case "TopicDescription":
                    yield TOPICS
                    if description.text_of("SubscriptionCount") == "0":
                        yield path.lower()
                case "SubscriptionDescription":
                    if match := _SUBSCRIPTION_PATH.fullmatch(path):
                        yield match[1].lower()

    def entry(self, entry: Element) -> None:
        content = entry.find("content")
        description = content.children[0] if content and content.children else None
        if description is None:
            self._notes.fault(
                place_of(entry),
                "An entry without a description.",
                "Remove it, or ask for it again.",
            )
            return
        path = self._path(entry)
        match description.name:
            case "QueueDescription":
                self._properties(self._draft.queue(path, place_of(entry)), description)
            case "TopicDescription":
                self._properties(self._draft.topic(path, place_of(entry)), description)
            case "SubscriptionDescription":
                if match := _SUBSCRIPTION_PATH.fullmatch(path):
                    draft = self._draft.subscription(match[1], match[2], place_of(entry))
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
                self._draft.set_tier(description.text_of("MessagingSKU"))
            case other:
                self._notes.finding(
                    place_of(description), path, other, f"{other} is nothing that RabbitMQ gets."
                )

    def finish(self) -> Reading:
        for description, topic, subscription, name in self._rules:
            draft = self._draft.owner_of_rule(topic, subscription, name, place_of(description))
            _rule(draft, description, description.text_of("Name") or name)
        self._draft.note_missing_rules("Append the feeds .../subscriptions/<name>/rules.")
        return replace(self._draft.finish(), listing=self._listing)

    def _path(self, entry: Element) -> str:
        """Return the path in an entry's id, without host and query; without an id, its title."""
        path = re.sub(r"^[A-Za-z][\w+.-]*://[^/]*/", "", entry.text_of("id")).split("?")[0]
        return unquote(path).strip("/") or entry.text_of("title")

    def _no_id(self, entry: Element, what: str) -> None:
        self._notes.fault(
            place_of(entry),
            f"The entry of a {what} has no id that says where it belongs.",
            f"Use the answer of a GET; its id is the URL of the {what}.",
        )

    def _properties(self, draft: EntityDraft, description: Element) -> None:
        xmltext.set_properties(draft, description, ignored=_IGNORED)
        if description.text_of("IsClientAffine").lower() == "true":
            draft.note_client_scope("IsClientAffine", place_of(description))
        default_rule = description.find("DefaultRuleDescription")
        if default_rule is not None:
            _rule(draft, default_rule, default_rule.text_of("Name") or DEFAULT_RULE_NAME)


def _rule(draft: EntityDraft, description: Element, name: str) -> None:
    place = place_of(description)
    try:
        found = read_filter(description.find("Filter"))
        action, parameters = read_action(description.find("Action"))
    except DescriptionError as error:
        where = f"{draft.title}, rule {name!r}: "
        draft.notes.fault(place_of(error.element), where + error.message, error.remedy)
        return
    filters.add_rule(draft, name, found, action, place, parameters)
