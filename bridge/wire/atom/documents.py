"""Documents in the administration API's requests and answers: entries, feeds and errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.model.errors import ArgumentError
from bridge.wire.atom.writing import ATOM, SERVICE_BUS, XmlElement, document
from bridge.wire.atom.xml import Element, XmlError, parse

BODY_BYTES_MAX = 64 * 1024
"""Of a request: several times what a description with every rule and the longest texts needs."""

_ELEMENTS_MAX = 1_000
"""Of a request: a queue with twelve rules has 200, a filter with a value in each property more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomEntry:
    """An entry: a description with its address.

    Attributes:
        url: the URL of the described entity or rule; SDKs take names from it.
        title: the name of the entity or rule.
        published, updated: times in UTC, as text.
    """

    url: str
    title: str
    published: str
    updated: str
    description: XmlElement


def read_description(body: bytes) -> Element:
    """Return the description in a request.

    Raises:
        ArgumentError: the body is too long, no XML, or no entry with a description.
    """
    if len(body) > BODY_BYTES_MAX:
        raise ArgumentError(f"A description has {BODY_BYTES_MAX} bytes at most.")
    try:
        roots = parse(body.decode("utf-8-sig"), elements_max=_ELEMENTS_MAX)
    except UnicodeDecodeError:
        raise ArgumentError("The body of the request is not UTF-8.") from None
    except XmlError as error:
        raise ArgumentError(f"The body of the request is not valid: {error}") from None
    entry = roots[0] if len(roots) == 1 else None
    content = entry.find("content") if entry is not None and entry.namespace == ATOM else None
    if content is None or len(content.children) != 1:
        raise ArgumentError("The body of the request is no ATOM entry with one description.")
    return content.children[0]


def entry_text(entry: AtomEntry, author: str) -> str:
    """Return the document of one entry."""
    return document(_entry(entry, author, {"xmlns": ATOM}))


def feed_text(
    title: str,
    url: str,
    updated: str,
    entries: Sequence[AtomEntry],
    author: str,
    next_url: str = "",
) -> str:
    """Return the document of a list of entries.

    The feed's link to itself comes first, the link to the next page second, and no other link:
    Python's SDK finds links by position.
    """
    children = [
        XmlElement("title", title, attributes={"type": "text"}),
        XmlElement("id", url),
        XmlElement("updated", updated),
        XmlElement("link", attributes={"rel": "self", "href": url}),
    ]
    if next_url:
        children.append(XmlElement("link", attributes={"rel": "next", "href": next_url}))
    children += [_entry(entry, author, {}) for entry in entries]
    return document(XmlElement("feed", children=tuple(children), attributes={"xmlns": ATOM}))


def nothing_text(url: str, updated: str) -> str:
    """Return the document that stands for a missing queue or topic: an empty feed."""
    return feed_text("Publicly Listed Services", url, updated, (), "")


def error_text(status: int, detail: str) -> str:
    """Return the document of an error."""
    children = (XmlElement("Code", str(status)), XmlElement("Detail", detail))
    return document(XmlElement("Error", children=children))


def _entry(entry: AtomEntry, author: str, attributes: dict[str, str]) -> XmlElement:
    assert entry.description.attributes["xmlns"] == SERVICE_BUS
    children = (
        XmlElement("id", entry.url),
        XmlElement("title", entry.title, attributes={"type": "text"}),
        XmlElement("published", entry.published),
        XmlElement("updated", entry.updated),
        XmlElement("author", children=(XmlElement("name", author),)),
        XmlElement("link", attributes={"rel": "self", "href": entry.url}),
        XmlElement(
            "content", children=(entry.description,), attributes={"type": "application/xml"}
        ),
    )
    return XmlElement("entry", children=children, attributes=attributes)
