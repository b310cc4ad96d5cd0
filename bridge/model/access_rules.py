"""Shared access rules: the rules of a namespace, and those that an operator writes.

The rules file (`--auth`) has them with the names of Azure's own export of a rule:

    {"rules": [{"name": "orders-reader", "primaryKey": "...", "secondaryKey": "...",
                "rights": ["Listen"], "scope": "orders"}]}

`scope` is a queue's or topic's path; without it (or as "/") the rule is the namespace's.
`secondaryKey` may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bridge.model.entity import AUTHORIZATION_RULES_MAX, AuthorizationRule, Namespace, Right
from bridge.model.errors import ArgumentError, ServiceBusError
from bridge.model.name import EntityPath, check_entity_name

_FIELDS = {"name", "primaryKey", "secondaryKey", "rights", "scope"}

WELL_KNOWN_RULE = AuthorizationRule(
    name="RootManageSharedAccessKey",
    primary_key="SAS_KEY_VALUE",
    rights=frozenset(Right),
)
"""The emulator's rule and key, which every SDK's documentation names; for loopback only."""

Segments = tuple[str, ...]


def path_segments(path: EntityPath | str) -> Segments:
    """Return a path's parts in lower case, `$management` included; the namespace has none."""
    text = str(path)
    if isinstance(path, EntityPath) and path.is_management:
        text += "/$management"
    return tuple(part for part in text.lower().split("/") if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRuleSet:
    """All shared access rules: the namespace's, and those of single queues and topics.

    Attributes:
        namespace: rules whose scope is every entity.
        entities: rules by the entity's path; they reach the entity and everything below it (its
            sub-queues, `$management`, a topic's subscriptions), but not another entity whose name
            continues after a '/'.
    """

    namespace: tuple[AuthorizationRule, ...] = ()
    entities: Mapping[str, tuple[AuthorizationRule, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, namespace: Namespace) -> AccessRuleSet:
        """Return the rules in a namespace's definition."""
        return cls(
            namespace=namespace.authorization_rules,
            entities={
                **{queue.name: queue.authorization_rules for queue in namespace.queues},
                **{topic.name: topic.authorization_rules for topic in namespace.topics},
            },
        )

    def merged(self, other: AccessRuleSet) -> AccessRuleSet:
        """Return the rules of both sets."""
        entities = {path_segments(name): name for name in self.entities}
        rules = dict(self.entities)
        for name, more in other.entities.items():
            name = entities.get(path_segments(name), name)
            rules[name] = (*rules.get(name, ()), *more)
        return AccessRuleSet(namespace=(*self.namespace, *other.namespace), entities=rules)

    def named(self, rule_name: str) -> Iterator[tuple[Segments, AuthorizationRule]]:
        """Yield the rules of this name, each with its path."""
        scopes: list[tuple[Segments, tuple[AuthorizationRule, ...]]] = [((), self.namespace)]
        scopes += [(path_segments(path), rules) for path, rules in self.entities.items()]
        for scope, rules in scopes:
            for rule in rules:
                if rule.name == rule_name:
                    yield scope, rule

    @property
    def count(self) -> int:
        """How many rules there are."""
        return len(self.namespace) + sum(len(rules) for rules in self.entities.values())

    def has_key(self, key: str) -> bool:
        """Whether any rule has this key."""
        every = [self.namespace, *self.entities.values()]
        return any(
            key in (rule.primary_key, rule.secondary_key) for rules in every for rule in rules
        )


def reaches(scope: Segments, path: Segments) -> bool:
    """Whether a rule for `scope` applies to `path`: to the same entity, or to a part of it."""
    if path[: len(scope)] != scope:
        return False
    below = path[len(scope) :]
    if not scope or not below or below[0] == "subscriptions" or below[0].startswith("$"):
        return True
    return below[0] == "rules" and scope[-2:-1] == ("subscriptions",)


def rule_keys(rule: AuthorizationRule) -> tuple[bytes, ...]:
    """Return the rule's keys as bytes for signing; an empty key is no key."""
    return tuple(key.encode() for key in (rule.primary_key, rule.secondary_key) if key)


def rules_of(listed: list[object]) -> AccessRuleSet:
    """Return the rules in the `rules` of a rules file.

    Raises:
        ArgumentError: names the rule and the field, never a key.
    """
    scopes: dict[Segments, tuple[str, list[AuthorizationRule]]] = {}
    for position, entry in enumerate(listed, 1):
        try:
            scope, rule = _read_rule(entry)
            _, rules = scopes.setdefault(path_segments(scope), (scope, []))
            if any(other.name.lower() == rule.name.lower() for other in rules):
                raise ArgumentError(f"the name {rule.name!r} is there twice in this scope")
            if len(rules) == AUTHORIZATION_RULES_MAX:
                raise ArgumentError(f"a scope takes {AUTHORIZATION_RULES_MAX} rules at most")
        except ServiceBusError as error:
            raise ArgumentError(
                f"The rules file, rule {position}: {str(error).rstrip('.')}."
            ) from None
        rules.append(rule)
    _, namespace = scopes.pop((), ("", []))
    entities = {scope: tuple(rules) for scope, rules in scopes.values()}
    return AccessRuleSet(namespace=tuple(namespace), entities=entities)


def _read_rule(entry: object) -> tuple[str, AuthorizationRule]:
    if not isinstance(entry, dict):
        raise ArgumentError("it is not an object")
    if unknown := sorted(set(entry) - _FIELDS):
        raise ArgumentError(f"the field {unknown[0]!r} is not known; known: {sorted(_FIELDS)}")
    for required in ("name", "primaryKey"):
        if not _is_text(entry.get(required)) or not entry[required]:
            raise ArgumentError(f"{required!r} must be a text that is not empty")
    for optional in ("secondaryKey", "scope"):
        if not _is_text(entry.get(optional, "")):
            raise ArgumentError(f"{optional!r} must be a text")
    rights = rights_of(entry.get("rights"))
    scope = entry.get("scope", "").strip("/")
    if scope:
        check_entity_name(scope)
    rule = AuthorizationRule(
        name=entry["name"],
        primary_key=entry["primaryKey"],
        secondary_key=entry.get("secondaryKey", ""),
        rights=rights,
    )
    return scope, rule


def rights_of(listed: object) -> frozenset[Right]:
    """Return the rights in a list of their names.

    Raises:
        ArgumentError: it is no such list, or an empty one.
    """
    names = {right.value: right for right in Right}
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(right, str) and right in names for right in listed)
    ):
        raise ArgumentError(f"'rights' must be a list of some of {sorted(names)}")
    return frozenset(names[right] for right in listed)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()
