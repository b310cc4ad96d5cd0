"""Output of `az servicebus ... list` and `show` with `-o json`, and REST answers of its form.

An input is one object, an array, arrays in an array (`jq -s . queues.json topics.json rules.json`),
or an object with `value`. The path of an entity is in its `id`. `az` lifts properties to the top;
the REST API keeps them under `properties`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from policies.readers import azureresource
from policies.readers.choice import of_one_namespace
from policies.readers.draft import NamespaceDraft
from policies.readers.jsontext import Node
from policies.readers.listing import QUEUES, TOPICS, Listing
from policies.readers.reading import Notes, Reading

_ID = re.compile(r".*/providers/microsoft\.servicebus/(namespaces/.+)", re.IGNORECASE)
_IGNORED = frozenset(
    {"etag", "id", "location", "name", "properties", "resourcegroup", "systemdata", "tags", "type"}
)


def is_this(document: Node) -> bool:
    """Whether a JSON document holds an entity with an id of Azure."""
    return any(_ID.fullmatch(node["id"].text) for node, _ in _objects(document))


def read_document(document: Node, source: str, *, namespace: str | None = None) -> Reading:
    """Return the namespace of a parsed document; `namespace` names one of several."""
    notes = Notes(source)
    draft = NamespaceDraft(notes)
    found: list[tuple[str, list[str], Node, bool]] = []
    for node, is_listed in _objects(document):
        match = _ID.fullmatch(node["id"].text)
        if match is None:
            notes.fault(
                node.place,
                "This is no entity of Service Bus: it has no id of one.",
                "Remove it, or list entities with 'az servicebus queue list -o json'.",
            )
            continue
        segments = match[1].strip("/").split("/")
        kind = "/".join(segments[::2]).lower()
        names = [azureresource.entity_name(each) for each in segments[1::2]]
        found.append((kind, names, node, is_listed))
    found = of_one_namespace(
        notes, found, lambda each: each[1][0], lambda each: each[2].place, namespace
    )
    for kind, names, node, _ in sorted(found, key=lambda each: each[0].count("/")):
        draft.name = draft.name or names[0]
        properties = node["properties"] if node["properties"].members else node
        azureresource.add(draft, kind, names, node, properties, ignored=_IGNORED)
    draft.note_missing_rules("Append the output of 'az servicebus topic subscription rule list'.")
    _note_next_pages(notes, document)
    listed = {
        each
        for kind, names, node, is_listed in found
        if is_listed
        for each in _lists_of(kind, names, node)
    }
    listing = Listing(kinds=frozenset(listed), empty=_empty_lists(document))
    return replace(draft.finish(), listing=listing)


def _lists_of(kind: str, names: list[str], node: Node) -> Iterator[str]:
    """Yield the lists that are complete when a list of this input has the entity."""
    match kind:
        case "namespaces/queues":
            yield QUEUES
        case "namespaces/topics":
            yield TOPICS
            counts = (node["subscriptionCount"], node["properties"]["subscriptionCount"])
            if any(count.value == 0 for count in counts):
                yield names[1].lower()
        case "namespaces/topics/subscriptions":
            yield names[1].lower()


def _note_next_pages(notes: Notes, document: Node) -> None:
    for item in (document, *document.items):
        if item["nextLink"].text:
            notes.leave_out(
                item["nextLink"].place,
                "",
                "nextLink",
                "The list goes on at its nextLink. Append what is there, and take nextLink out.",
            )


def _objects(document: Node, is_listed: bool = False) -> Iterator[tuple[Node, bool]]:
    """Yield every entity, and whether a list has it."""
    if isinstance(document.value, list):
        for item in document.items:
            yield from _objects(item, True)
    elif _is_page(document):
        yield from _objects(document["value"], True)
    elif document.members:
        yield document, is_listed


def _empty_lists(document: Node) -> int:
    if isinstance(document.value, list):
        return sum(map(_empty_lists, document.items)) if document.items else 1
    return _empty_lists(document["value"]) if _is_page(document) else 0


def _is_page(document: Node) -> bool:
    return isinstance(document["value"].value, list) and "id" not in document
