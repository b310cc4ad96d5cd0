"""What a client of the administration API asks for, and how it reads the answers."""

from __future__ import annotations

from urllib.parse import parse_qs, quote, urlsplit

from bridge.wire.atom.writing import ATOM, XmlElement, document
from bridge.wire.atom.xml import Element, parse

API_VERSION = "2021-05"
"""The version of the API that is asked for."""

LISTS = {
    "Queue": "$Resources/Queues",
    "Topic": "$Resources/Topics",
    "Subscription": "Subscriptions",
    "Rule": "Rules",
}
"""The path of each kind's list, below the path of the parent."""

NAMESPACE = "$namespaceinfo"
"""The path of the namespace's own description."""

PageSpan = tuple[int, int]
"""The first index and the length of a page of a list."""


def path_of(entity: str, *below: str) -> str:
    """Return the path of an entity or a rule, percent-encoded.

    Args:
        below: a topic's subscription, and its rule.

    Raises:
        TypeError: a name is no text; a path without that name would be the parent's.
    """
    for name in (entity, *below):
        if not isinstance(name, str):
            raise TypeError(f"A name is a str, not {type(name).__name__}.")
    if not entity:
        raise ValueError("A name has a character at least.")
    steps = zip(("Subscriptions", "Rules"), below, strict=False)
    return "/".join((quote(entity), *(f"{step}/{quote(name, safe='')}" for step, name in steps)))


def list_path(kind: str, *names: str) -> str:
    """Return the path of a list, below the entity of these names."""
    return (f"{path_of(*names)}/" if names else "") + LISTS[kind]


def request_text(description: XmlElement) -> str:
    """Return the document of a request: an entry with one description."""
    content = XmlElement("content", children=(description,), attributes={"type": "application/xml"})
    return document(XmlElement("entry", children=(content,), attributes={"xmlns": ATOM}))


def root_in(text: str) -> Element:
    """Return the document of an answer; an empty element for an answer without one.

    Raises:
        XmlError: the text is no XML.
    """
    return parse(text)[0] if text else Element("", "", {})


def description_of(root: Element, name: str) -> Element | None:
    """Return the description in an entry; `None` if of another name."""
    return root.find("content", name)


def page_of(root: Element, name: str) -> tuple[list[tuple[str, Element]], PageSpan | None]:
    """Return a feed's entries with a description of this name, and the place of the next page."""
    entries = []
    for entry in root.all("entry"):
        description = description_of(entry, name)
        if description is not None:
            entries.append((entry.text_of("title"), description))
    links = [each.attributes for each in root.all("link")]
    following = next((each["href"] for each in links if each.get("rel") == "next"), None)
    return entries, None if following is None else _place(following)


def _place(url: str) -> PageSpan:
    query = parse_qs(urlsplit(url).query)
    return int(query["$skip"][0]), int(query["$top"][0])
