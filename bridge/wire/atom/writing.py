"""Writing of XML: a tree of elements as text.

The SDKs look for the literal attribute `i:type`, so the prefixes are the service's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

NAMESPACES = {"xmlns": SERVICE_BUS, "xmlns:i": INSTANCE}
"""The attributes of a description's root."""

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write."""


@dataclass(frozen=True, slots=True)
class XmlElement:
    """An element: text or children."""

    name: str
    text: str = ""
    children: tuple[XmlElement, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)


def typed(name: str) -> dict[str, str]:
    """Return the attribute that gives an element's type."""
    return {"i:type": name}


def document(root: XmlElement) -> str:
    """Return the text of an element with all elements below it."""
    return "".join(_parts(root))


def _parts(node: XmlElement) -> Iterable[str]:
    attributes = "".join(f' {name}="{_attribute(text)}"' for name, text in node.attributes.items())
    if not node.children and not node.text:
        yield f"<{node.name}{attributes} />"
        return
    yield f"<{node.name}{attributes}>{_text(node.text)}"
    for child in node.children:
        yield from _parts(child)
    yield f"</{node.name}>"


def _text(text: str) -> str:
    """Return an escaped text; a parser would turn a bare carriage return into a line feed."""
    return escape(_FORBIDDEN.sub("\ufffd", text), {"\r": "&#13;"})


def _attribute(text: str) -> str:
    entities = {'"': "&quot;", "\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
    return escape(_FORBIDDEN.sub("\ufffd", text), entities)
