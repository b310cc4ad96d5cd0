"""Descriptions of entities: XML as the SDKs write and read it, and the model's values.

Elements are written in the service's order (the generated models of the SDKs) and read by name, as
.NET's order differs. Elements that only the service sets are ignored when a client sends them, as
in an update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.model import entity as model
from bridge.model.capacity import capacity_mb
from bridge.model.counts import Counts
from bridge.model.duration import format_duration
from bridge.model.errors import ArgumentError
from bridge.model.properties import CREATE_ONLY, MAKERS, PROPERTIES, EntityKind, kind_of, names_of
from bridge.model.tiers import TIER_MESSAGE_SIZE_KB
from bridge.model.values import rights
from bridge.wire.atom.access import access_nodes, read_access_rule
from bridge.wire.atom.errors import DescriptionError
from bridge.wire.atom.rules import action_node, filter_node, read_action, read_filter
from bridge.wire.atom.writing import COUNTS, NAMESPACES, SERVICE_BUS, XmlElement
from bridge.wire.atom.xml import Element

NEVER = "0001-01-01T00:00:00Z"
"""A time that is not known, as the service writes it."""

VERSION = "2021-05"
"""The version of the API in which MaxMessageSizeInKilobytes came; earlier ones do not tell it, and
refuse it (Azure's own Python tests: `test_mgmt_queue_basic_v2017_04`)."""

_QUEUE = """
    LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession
    DefaultMessageTimeToLive DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow
    MaxDeliveryCount EnableBatchedOperations SizeInBytes MessageCount IsAnonymousAccessible
    AuthorizationRules Status ForwardTo UserMetadata CreatedAt UpdatedAt AccessedAt SupportOrdering
    CountDetails AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
    ForwardDeadLetteredMessagesTo EnableExpress MaxMessageSizeInKilobytes
"""
_TOPIC = """
    DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection
    DuplicateDetectionHistoryTimeWindow EnableBatchedOperations SizeInBytes
    FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status CreatedAt
    UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount SqlFilterCount
    CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
    EnableSubscriptionPartitioning EnableExpress UserMetadata MaxMessageSizeInKilobytes
"""
_SUBSCRIPTION = """
    LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
    DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations
    Status ForwardTo CreatedAt UpdatedAt AccessedAt CountDetails UserMetadata
    ForwardDeadLetteredMessagesTo AutoDeleteOnIdle EntityAvailabilityStatus IsClientAffine
"""
ELEMENTS = {
    EntityKind.QUEUE: tuple(_QUEUE.split()),
    EntityKind.TOPIC: tuple(_TOPIC.split()),
    EntityKind.SUBSCRIPTION: tuple(_SUBSCRIPTION.split()),
}
"""Every element of a description, in order."""

_ROOTS = {f"{kind.value}Description": kind for kind in EntityKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about an entity that the service tells beside its definition.

    Attributes:
        address: the beginning of the URLs of targets of forwarding.
        tier: the namespace's tier.
        counts: the counts of the entity's messages; `None` leaves their elements out.
        accessed_at: the time of the last use, as text; "" when it is not known.
        version: the version of the API that the client asks with.
    """

    address: str
    tier: model.Tier = model.Tier.STANDARD
    counts: Counts | None = None
    accessed_at: str = ""
    version: str = VERSION


_SCHEME = "sb"
_SCHEMES = {
    "ForwardTo": "forward_to_scheme",
    "ForwardDeadLetteredMessagesTo": "forward_dead_letters_scheme",
}
"""Property -> field with the scheme of its URL."""


def described_kind(description: Element) -> EntityKind | None:
    """Return the kind of entity that an element describes; `None` when it describes none."""
    return _ROOTS.get(description.name) if description.namespace == SERVICE_BUS else None


def read_entity(
    description: Element,
    identity: Mapping[str, str],
    there: model.Entity | None = None,
    *,
    version: str = VERSION,
) -> model.Entity:
    """Return the entity of a description.

    A property that is not described has the service's default. In an update, a property that can
    only be set at creation keeps the value of the existing entity.

    Args:
        identity: `name`, and a subscription's `topic`.
        there: the existing entity, for an update.
        version: the version of the API; one without a property leaves that as it is.

    Raises:
        ServiceBusError: a value is malformed, outside Service Bus's range, or of a property that
            the version has not.
    """
    kind = _ROOTS[description.name]
    fields = _fields(description, kind)
    if version < VERSION:
        if "max_message_size_kb" in fields:
            raise ArgumentError(
                f"MaxMessageSizeInKilobytes needs api-version {VERSION}; this has {version}."
            )
        if isinstance(there, model.Queue | model.Topic):
            fields["max_message_size_kb"] = there.max_message_size_kb
    if there is not None:
        assert kind_of(there) is kind
        for name in CREATE_ONLY:
            if hasattr(there, name):
                fields.setdefault(name, getattr(there, name))
        if isinstance(there, model.Queue | model.Topic) and fields.get(
            "max_size_mb"
        ) == capacity_mb(there):
            fields["max_size_mb"] = there.max_size_mb  # it is what was read back
        for name in ("incarnation", "created_at", "updated_at", "rules", "subscriptions"):
            if hasattr(there, name):
                fields[name] = getattr(there, name)
    return MAKERS[kind](**{**fields, **identity})


def _fields(description: Element, kind: EntityKind) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    known = names_of(kind)
    for child in description.children:
        if child.name in known and not child.is_nil and child.text.strip():
            fields[PROPERTIES[child.name].field] = _value(child)
            if child.name in _SCHEMES:
                fields[_SCHEMES[child.name]] = _scheme(child.text.strip())
        elif child.name == "UserMetadata" and not child.is_nil:
            fields["has_empty_user_metadata"] = True
        elif child.name == "IsAnonymousAccessible" and child.text.strip().lower() == "true":
            raise ArgumentError("IsAnonymousAccessible cannot be true: every client needs a key.")
        elif child.name == "AuthorizationRules" and kind is not EntityKind.SUBSCRIPTION:
            fields["authorization_rules"] = _access_rules(child)
        elif child.name == "DefaultRuleDescription" and not child.is_nil:
            fields["rules"] = (read_rule(child),)
    return fields


def _scheme(target: str) -> str:
    """Return the scheme of a forwarding target's URL; "" for a plain name and for `sb`."""
    scheme, mark, _ = target.partition("://")
    return scheme.lower() if mark and scheme.lower() != _SCHEME else ""


def _with_scheme(entity: model.Entity, name: str, text: str) -> str:
    """Return the URL of a forwarding target with the scheme that the client gave."""
    scheme = getattr(entity, _SCHEMES[name]) if name in _SCHEMES else ""
    return scheme + text.removeprefix(_SCHEME) if scheme else text


def _value(child: Element) -> object:
    try:
        return PROPERTIES[child.name].read(child.text)
    except ValueError as error:
        raise ArgumentError(
            f"The value {child.text[:100]!r} of the property {child.name} is not valid: {error}."
        ) from None


def _access_rules(parent: Element) -> tuple[model.AuthorizationRule, ...]:
    found: dict[str, model.AuthorizationRule] = {}
    for given in map(read_access_rule, parent.children):
        if not given.name or given.name.lower() in found:
            raise ArgumentError(
                f"An authorization rule needs a KeyName that no other has, not {given.name!r}."
            )
        try:
            claims = rights(given.rights)
        except ValueError as error:
            raise ArgumentError(f"The rights of the rule {given.name!r}: {error}.") from None
        found[given.name.lower()] = model.AuthorizationRule(
            name=given.name,
            primary_key=given.primary_key,
            secondary_key=given.secondary_key,
            rights=claims,
        )
    return tuple(found.values())


def read_rule(description: Element, name: str = "") -> model.Rule:
    """Return the rule of a `RuleDescription`, or of a subscription's `DefaultRuleDescription`.

    Args:
        name: the rule's name in the request; "" takes the name in a default rule's description.

    Raises:
        ServiceBusError: the rule's filter or action is malformed, or its name is not valid.
    """
    try:
        found = read_filter(description.find("Filter"))
        action, parameters = read_action(description.find("Action"))
    except DescriptionError as error:
        raise ArgumentError(f"The rule {name!r}: {error}") from None
    if found is None:
        raise ArgumentError(f"The SQL filter of the rule {name!r} has no expression.")
    return model.Rule(
        name=name or description.text_of("Name") or model.DEFAULT_RULE.name,
        filter=found,
        action=action,
        action_parameters=parameters,
    )


def entity_node(entity: model.Entity, facts: Facts) -> XmlElement:
    """Return the description of an entity."""
    kind = kind_of(entity)
    told = _told(entity, kind, facts)
    nodes = []
    for name in ELEMENTS[kind]:
        if name in told:
            nodes.append(told[name])
        elif name == "MaxSizeInMegabytes" and isinstance(entity, model.Queue | model.Topic):
            nodes.append(XmlElement(name, str(capacity_mb(entity))))
        elif name == "UserMetadata" and entity.has_empty_user_metadata:
            nodes.append(XmlElement(name, entity.user_metadata))
        elif name == "MaxMessageSizeInKilobytes" and facts.version < VERSION:
            continue
        elif name in PROPERTIES and (
            (text := _text(getattr(entity, PROPERTIES[name].field), facts, name)) is not None
        ):
            nodes.append(XmlElement(name, _with_scheme(entity, name, text)))
    root = f"{kind.value}Description"
    return XmlElement(root, children=tuple(nodes), attributes=NAMESPACES)


def rule_node(rule: model.Rule, created_at: str) -> XmlElement:
    """Return the description of a rule."""
    children = (
        filter_node(rule.filter),
        action_node(rule.action, rule.action_parameters),
        XmlElement("CreatedAt", created_at or NEVER),
        XmlElement("Name", rule.name),
    )
    return XmlElement("RuleDescription", children=children, attributes=NAMESPACES)


def namespace_node(namespace: model.Namespace, name: str) -> XmlElement:
    """Return the description of a namespace."""
    children = [
        XmlElement("CreatedTime", namespace.created_at or NEVER),
        XmlElement("MessagingSKU", namespace.tier.value),
        XmlElement("ModifiedTime", namespace.updated_at or namespace.created_at or NEVER),
        XmlElement("Name", name),
        XmlElement("NamespaceType", "Messaging"),
    ]
    if namespace.tier is model.Tier.PREMIUM:
        children.insert(2, XmlElement("MessagingUnits", "1"))
    return XmlElement("NamespaceInfo", children=tuple(children), attributes=NAMESPACES)


def _text(value: object, facts: Facts, name: str) -> str | None:
    """Return a property's text; `None` when the description has no element for it."""
    field = PROPERTIES[name].field
    if field == "max_message_size_kb" and value is None:
        return str(TIER_MESSAGE_SIZE_KB[facts.tier])
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return format_duration(value) if field.endswith("_ms") else str(value)
    if isinstance(value, model.EntityStatus):
        return value.value
    assert isinstance(value, str)
    if value and field in ("forward_to", "forward_dead_lettered_messages_to"):
        return f"{facts.address}/{value}"
    return value or None


def _told(entity: model.Entity, kind: EntityKind, facts: Facts) -> dict[str, XmlElement]:
    """Return the elements of a description that are no properties of the model."""
    nodes = [
        XmlElement("IsAnonymousAccessible", "false"),
        XmlElement("CreatedAt", entity.created_at or NEVER),
        XmlElement("UpdatedAt", entity.updated_at or entity.created_at or NEVER),
        XmlElement("AccessedAt", facts.accessed_at or NEVER),
        XmlElement("EnableSubscriptionPartitioning", "false"),
        XmlElement("IsClientAffine", "false"),
    ]
    nodes += _count_nodes(facts.counts)
    if isinstance(entity, model.Queue):
        nodes.append(
            XmlElement("SupportOrdering", "false" if entity.enable_partitioning else "true")
        )
    if not isinstance(entity, model.Subscription):
        rules = tuple(access_nodes(entity.authorization_rules))
        nodes.append(XmlElement("AuthorizationRules", children=rules))
    if isinstance(entity, model.Topic):
        nodes += _topic_counts(entity)
    return {node.name: node for node in nodes if node.name in ELEMENTS[kind]}


def _count_nodes(counts: Counts | None) -> list[XmlElement]:
    """Return the elements with counts; an entity with old counts is of limited availability."""
    if counts is None:
        return [XmlElement("EntityAvailabilityStatus", "Available")]
    size_bytes = counts.size_bytes
    return [
        XmlElement("EntityAvailabilityStatus", "Limited" if counts.is_old else "Available"),
        *([] if size_bytes is None else [XmlElement("SizeInBytes", str(size_bytes))]),
        XmlElement("MessageCount", str(counts.total)),
        _count_details(counts),
    ]


def _topic_counts(topic: model.Topic) -> list[XmlElement]:
    filters = [rule.filter for each in topic.subscriptions for rule in each.rules]
    sql = sum(not isinstance(each, model.CorrelationFilter) for each in filters)
    return [
        XmlElement("SubscriptionCount", str(len(topic.subscriptions))),
        XmlElement("SqlFilterCount", str(sql)),
        XmlElement("CorrelationFilterCount", str(len(filters) - sql)),
    ]


def _count_details(counts: Counts) -> XmlElement:
    each = {
        "ActiveMessageCount": counts.active,
        "DeadLetterMessageCount": counts.dead_letter,
        "ScheduledMessageCount": counts.scheduled,
        "TransferMessageCount": counts.transfer,
        "TransferDeadLetterMessageCount": counts.transfer_dead_letter,
    }
    children = tuple(XmlElement(f"d2p1:{name}", str(count)) for name, count in each.items())
    return XmlElement("CountDetails", children=children, attributes={"xmlns:d2p1": COUNTS})
