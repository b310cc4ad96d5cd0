"""XML text as a tree; its faults are those of an input."""

from __future__ import annotations

from bridge.wire.atom import xml
from bridge.wire.atom.xml import Element, XmlError
from policies.errors import Fault, Place, ReadError


def parse(text: str, source: str) -> list[Element]:
    """Return the root elements of the documents in a text.

    Raises:
        ReadError: it is no XML; the error names the line.
    """
    try:
        return xml.parse(text)
    except XmlError as error:
        fault = Fault(place=Place(line=error.line), message=error.message, remedy=error.remedy)
        raise ReadError(source, [fault]) from error


def place_of(element: Element) -> Place:
    """Return where an element stands."""
    return Place(line=element.line, path=element.path)
