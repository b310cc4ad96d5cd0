"""Authorization rules of an entity in its description."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bridge.model.entity import AuthorizationRule, Right
from bridge.wire.atom.writing import XmlElement, typed
from bridge.wire.atom.xml import Element


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """An authorization rule as a description has it, with unchecked values."""

    name: str
    rights: tuple[str, ...]
    primary_key: str = field(default="", repr=False)
    secondary_key: str = field(default="", repr=False)


def read_access_rule(element: Element) -> AccessRule:
    """Return the rule of an `AuthorizationRule` element."""
    rights = element.find("Rights") or element.find("AccessRights")
    return AccessRule(
        name=element.text_of("KeyName"),
        rights=tuple(each.text.strip() for each in rights.children) if rights else (),
        primary_key=element.text_of("PrimaryKey"),
        secondary_key=element.text_of("SecondaryKey"),
    )


def access_nodes(rules: Sequence[AuthorizationRule]) -> Iterator[XmlElement]:
    """Yield the elements of authorization rules, with the times that are known."""
    for rule in rules:
        times = (("CreatedTime", rule.created_at), ("ModifiedTime", rule.modified_at))
        rights = [
            XmlElement("AccessRights", right.value) for right in Right if right in rule.rights
        ]
        yield XmlElement(
            "AuthorizationRule",
            children=(
                XmlElement("ClaimType", "SharedAccessKey"),
                XmlElement("ClaimValue", "None"),
                XmlElement("Rights", children=tuple(rights)),
                *(XmlElement(name, at) for name, at in times if at),
                XmlElement("KeyName", rule.name),
                XmlElement("PrimaryKey", rule.primary_key),
                XmlElement("SecondaryKey", rule.secondary_key),
            ),
            attributes=typed("SharedAccessAuthorizationRule"),
        )
