"""Resources in the form of Azure's control plane: type, names, properties in camel case.

ARM templates, `az` and REST answers describe entities in this form. Its property names are not
case-sensitive. The `/` in an entity's name is written as `~`.
"""

from __future__ import annotations

from difflib import get_close_matches

from bridge.model import entity as model
from bridge.model.properties import PROPERTIES, READ_ONLY, camel, names_of
from policies.errors import Position
from policies.readers import access, filters
from policies.readers.arm.unresolved import is_unresolved, reason
from policies.readers.draft import EntityDraft, NamespaceDraft
from policies.readers.jsontext import Node
from policies.readers.reading import Notes

KINDS = {
    "namespaces",
    "namespaces/authorizationrules",
    "namespaces/queues",
    "namespaces/queues/authorizationrules",
    "namespaces/topics",
    "namespaces/topics/authorizationrules",
    "namespaces/topics/subscriptions",
    "namespaces/topics/subscriptions/rules",
}
"""The types, below the provider and in lower case, that describe entities."""

_READ_ONLY = {name.lower() for name in READ_ONLY} | {"supportordering", "isanonymousaccessible"}
_OTHER_KINDS = {name.lower() for name in PROPERTIES}
_NAMESPACE_WORTH_A_WORD = {
    "disablelocalauth": (True, "Shared access signatures stay allowed; the bridge knows no other."),
    "encryption": (None, "Encryption at rest is that of RabbitMQ's disks."),
    "publicnetworkaccess": ("Disabled", "Networks are the operator's matter."),
    "zoneredundant": (True, "Replication is that of RabbitMQ's cluster."),
}


def entity_name(segment: str) -> str:
    """Return an entity's name from a segment of a resource's name."""
    return segment.replace("~", "/")


def is_named(notes: Notes, place: Position, kind: str, names: tuple[str, ...]) -> bool:
    """Whether all names below the namespace's are known; if not, note a finding."""
    for name in names[1:]:
        if is_unresolved(name):
            notes.leave_out(
                place,
                "/".join(n for n in names[1:] if not is_unresolved(n)),
                "name",
                f"A resource of the type {kind} is left out: a part of its name is not known: "
                f"{reason(name)}.",
            )
            return False
    return True


def add(
    draft: NamespaceDraft,
    kind: str,
    names: list[str],
    body: Node,
    properties: Node,
    *,
    ignored: frozenset[str] = frozenset(),
) -> None:
    """Add a resource to the draft of its namespace.

    Args:
        kind: the resource's type below the provider, in lower case.
        names: a name for each segment of the type.
        ignored: keys, in lower case, that stand beside the properties and are none.
    """
    place = body.place
    match kind.removeprefix("namespaces"), names:
        case "", [name]:
            add_namespace(draft, name, body)
        case "/authorizationrules", [_, name]:
            _add_access_rule(draft.notes, "", draft.authorization_rules, name, properties)
        case "/queues", [_, name]:
            _set_properties(draft.queue(name, place), properties, ignored)
        case "/topics", [_, name]:
            _set_properties(draft.topic(name, place), properties, ignored)
        case "/topics/subscriptions", [_, topic, name]:
            _set_properties(draft.subscription(topic, name, place), properties, ignored)
        case "/topics/subscriptions/rules", [_, topic, subscription, name]:
            _add_rule(draft.owner_of_rule(topic, subscription, name, place), name, properties)
        case (("/queues/authorizationrules" | "/topics/authorizationrules"), [_, entity, name]):
            _add_entity_access_rule(draft, entity, name, properties)
        case _:
            message = f"{kind} is nothing that RabbitMQ gets from here."
            draft.notes.finding(place, "", kind, message)


def add_namespace(draft: NamespaceDraft, name: str, body: Node) -> None:
    """Add the name, tier and notable properties of a namespace's own resource."""
    if is_unresolved(name):
        draft.notes.finding(
            body["name"].place,
            "",
            "name",
            f"The namespace's name is not known: {reason(name)}.",
            grade="approximate",
        )
    else:
        draft.name = name
    sku = body["sku"]
    written = sku["name"].text or sku["tier"].text
    draft.set_tier(written)
    if is_unresolved(written):
        draft.notes.finding(
            sku.place,
            "",
            "sku",
            f"The tier is not known: {reason(written)}. It is taken as Standard.",
            grade="approximate",
        )
    given = {**body.members, **body["properties"].members}
    for key, member in given.items():
        worth, message = _NAMESPACE_WORTH_A_WORD.get(key.lower(), ("", ""))
        if message and member.value is not None and worth in (None, member.value):
            draft.notes.finding(member.place, "", key, message)


def _set_properties(draft: EntityDraft, properties: Node, ignored: frozenset[str]) -> None:
    """Set an entity's properties, and note those that are unknown."""
    known = {camel(name).lower(): name for name in names_of(draft.kind)}
    if is_unresolved(properties.text):
        _unknown_values(draft, properties, "its properties are", reason(properties.text))
    for key, member in properties.members.items():
        name = known.get(key.lower())
        value = member.plain()
        if is_unresolved(key):
            _unknown_values(draft, properties, "some of its properties are", reason(key))
        elif name is None:
            _unknown(draft, key, member, ignored)
        elif is_unresolved(value):
            draft.notes.finding(
                member.place,
                draft.path,
                name,
                f"{draft.title}: {name} is not known: {reason(value)}. Azure's default is taken.",
                grade="approximate",
            )
        else:
            draft.set(name, value, member.place)


def _unknown_values(draft: EntityDraft, place: Node, what: str, why: str) -> None:
    message = f"{draft.title}: {what} not known: {why}. Azure's defaults are taken for them."
    draft.notes.finding(place.place, draft.path, "properties", message, grade="approximate")


def _unknown(draft: EntityDraft, key: str, member: Node, ignored: frozenset[str]) -> None:
    if key.lower() in _READ_ONLY | ignored or member.value in (None, False, ""):
        return
    if key.lower() in ("isclientaffine", "clientaffineproperties"):
        if key.lower() == "isclientaffine":
            draft.note_client_scope(key, member.place)
    elif key.lower() in _OTHER_KINDS:
        message = f"{draft.title}: a {draft.kind.value.lower()} has no {key}; it has no effect."
        draft.notes.finding(member.place, draft.path, key, message)
    else:
        draft.note_unknown(key, member.place)


def _add_access_rule(
    notes: Notes,
    owner: str,
    rules: list[model.AuthorizationRule],
    name: str,
    properties: Node,
) -> None:
    """Add an authorization rule of a namespace or entity."""
    rights = properties["rights"]
    if is_unresolved(rights.plain()):
        notes.finding(
            rights.place,
            owner,
            "AuthorizationRules",
            f"The authorization rule {name!r} is left out: {reason(rights.plain())}.",
        )
        return
    keys = {}
    for key in ("primaryKey", "secondaryKey"):
        keys[key] = "" if is_unresolved(properties[key].text) else properties[key].text
    access.add(
        notes,
        owner,
        rules,
        rights.place,
        name=name,
        rights=rights.plain(),
        primary_key=keys["primaryKey"],
        secondary_key=keys["secondaryKey"],
    )


def _add_entity_access_rule(
    draft: NamespaceDraft, entity: str, name: str, properties: Node
) -> None:
    """Add an authorization rule of a queue or topic, or note that the entity is missing."""
    found = draft.find(entity)
    if found is None:
        message = (
            f"The authorization rule {name!r} is left out: {entity!r} is not in this file. Have "
            "both in one; of what az printed 'jq -s . queues.json access.json' makes one."
        )
        draft.notes.finding(properties.place, entity, "AuthorizationRules", message)
        return
    _add_access_rule(draft.notes, found.path, found.authorization_rules, name, properties)


_SQL_KEYS = ("sqlExpression", "compatibilityLevel", "requiresPreprocessing")
_RULE_KEYS = {
    "": ("filterType", "sqlFilter", "correlationFilter", "action"),
    "sqlFilter": _SQL_KEYS,
    "correlationFilter": (*map(camel, filters.CORRELATION_FIELDS), "properties", _SQL_KEYS[-1]),
    "action": _SQL_KEYS,
}
_IDENTITY_KEYS = ("etag", "id", "location", "name", "resourceGroup", "systemData", "type")
"""What `az` prints beside the properties of a rule."""


def _compares(correlation: Node) -> bool:
    """Whether a correlation filter names anything to compare."""
    return any(correlation[camel(field)].text for field in filters.CORRELATION_FIELDS) or bool(
        correlation["properties"].members
    )


def _unknown_in_rule(draft: EntityDraft, rule: str, properties: Node) -> bool:
    """Note each property of a rule that Service Bus does not have; return whether one is there."""
    is_found = False
    for part, keys in _RULE_KEYS.items():
        node = properties[part] if part else properties
        known = {key.lower() for key in (*keys, *(() if part else _IDENTITY_KEYS))}
        for key, member in node.members.items():
            if key.lower() in known | _READ_ONLY or member.value is None:
                continue
            is_found = True
            near = get_close_matches(key, keys, n=1, cutoff=0.6)
            draft.notes.finding(
                member.place,
                draft.path,
                f"Rule {rule}",
                f"{draft.title}, rule {rule!r}: {key} is not known; it is left out."
                + (f" Did you mean {near[0]!r}?" if near else ""),
            )
    return is_found


def _is_malformed(draft: EntityDraft, rule: str, properties: Node) -> bool:
    """Note each part of a rule with a wrong JSON type; return whether one is there.

    A rule that was read without such a part would match more messages.
    """
    before = len(draft.notes.faults)
    texts = ("sqlExpression", *map(camel, filters.CORRELATION_FIELDS))
    for part in ("sqlFilter", "correlationFilter", "action"):
        node = properties[part]
        typed = [(node, dict), (node["properties"], dict), *((node[key], str) for key in texts)]
        for given, kind in typed:
            if given.value not in (None, "", []) and not isinstance(given.value, kind):
                draft.notes.fault(
                    given.place,
                    f"{draft.title}, rule {rule!r}: this is {given.kind}.",
                    f"It must be {'an object' if kind is dict else 'a string'}.",
                )
    return len(draft.notes.faults) > before


def _add_rule(draft: EntityDraft, name: str, properties: Node) -> None:
    """Add a rule to a subscription's draft, or note why it is left out."""
    if is_unresolved(properties.value):
        draft.leave_out_rule(name, properties.place, reason(properties.value))
        return
    wanted = (properties["filterType"], properties["sqlFilter"], properties["correlationFilter"])
    for node in (*wanted, properties["action"]):
        if is_unresolved(node.plain()):
            draft.leave_out_rule(name, node.place, reason(node.plain()))
            return
    if _is_malformed(draft, name, properties):
        return
    unknown = _unknown_in_rule(draft, name, properties)
    action = properties["action"]["sqlExpression"].text
    correlation = properties["correlationFilter"]
    kind = properties["filterType"].text.lower().removesuffix("filter")
    if kind == "correlation" and not _compares(correlation) and unknown:
        draft.leave_out_rule(name, properties.place, "it has no filter that is known")
        return
    if kind == "correlation" or (not kind and correlation.members):
        fields = {field: correlation[camel(field)].text for field in filters.CORRELATION_FIELDS}
        given = {k: each.plain() for k, each in correlation["properties"].members.items()}
        found: model.Filter | None = filters.correlation(fields, given)
    elif kind in ("sql", ""):
        expression = properties["sqlFilter"]["sqlExpression"].text
        found = filters.sql(expression) if expression else None
        if found is None and unknown:
            draft.leave_out_rule(name, properties.place, "it has no filter that is known")
            return
        if found is None and not kind:
            found = model.TrueFilter()
    else:
        draft.notes.fault(
            properties["filterType"].place,
            f"{draft.title}, rule {name!r}: filterType is {properties['filterType'].text!r}.",
            "It is SqlFilter or CorrelationFilter.",
        )
        return
    filters.add_rule(draft, name, found, action, properties.place)
