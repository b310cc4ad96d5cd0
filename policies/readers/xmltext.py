"""XML text as a tree, and the properties of an entity that every XML format has."""

from __future__ import annotations

from collections.abc import Container, Mapping

from bridge.model.properties import names_of
from bridge.wire.atom import xml
from bridge.wire.atom.access import read_access_rule
from bridge.wire.atom.xml import Element, XmlError
from policies.errors import Fault, Position, ReadError
from policies.readers import access
from policies.readers.draft import EntityDraft


def parse(text: str, source: str) -> list[Element]:
    """Return the root elements of the documents in a text.

    Raises:
        ReadError: the text is no XML; the error names the line.
    """
    try:
        return xml.parse(text)
    except XmlError as error:
        fault = Fault(place=Position(line=error.line), message=error.message, remedy=error.remedy)
        raise ReadError(source, [fault]) from error


def place_of(element: Element) -> Position:
    """Return an element's line and path."""
    return Position(line=element.line, path=element.path)


def set_properties(
    draft: EntityDraft,
    description: Element,
    *,
    ignored: Container[str],
    renamed: Mapping[str, str] | None = None,
) -> None:
    """Set the properties and access rules of an entity.

    Args:
        ignored: names of elements that are no properties.
        renamed: Azure's names of properties, by the element's name where it differs.
    """
    known = names_of(draft.kind)
    for child in description.children:
        name = (renamed or {}).get(child.name, child.name)
        if name in known:
            draft.set(name, child.text, place_of(child))
        elif name == "AuthorizationRules":
            for rule in child.children:
                _add_access_rule(draft, rule)
        elif name not in ignored:
            draft.note_unknown(child.name, place_of(child))


def _add_access_rule(draft: EntityDraft, element: Element) -> None:
    given = read_access_rule(element)
    access.add(
        draft.notes,
        draft.path,
        draft.authorization_rules,
        place_of(element),
        name=given.name,
        rights=given.rights,
        primary_key=given.primary_key,
        secondary_key=given.secondary_key,
    )
