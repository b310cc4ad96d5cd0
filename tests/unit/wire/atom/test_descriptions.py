"""Descriptions of entities: written and read back, by us and by an SDK's own (de)serialiser."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from azure.servicebus import management
from azure.servicebus.management._generated import models
from azure.servicebus.management._utils import deserialize_rule_key_values
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model import entity as model
from bridge.model.capacity import capacity_mb
from bridge.model.counts import Counts
from bridge.model.duration import MAX_MS
from bridge.model.errors import ArgumentError, ServiceBusError
from bridge.model.properties import PROPERTIES, READ_ONLY, EntityKind, kind_of, names_of
from bridge.topology.definitions import entities, from_json, to_json
from bridge.wire.atom.descriptions import (
    ELEMENTS,
    Facts,
    entity_node,
    namespace_node,
    read_entity,
    read_rule,
    rule_node,
)
from bridge.wire.atom.documents import AtomEntry, entry_text, feed_text, read_description
from bridge.wire.atom.tier_limits import check_capacity, check_message_size
from bridge.wire.atom.writing import XmlElement
from tests.unit.policies.entities import namespaces

SETTINGS = settings(max_examples=15, deadline=None)
ADDRESS = "sb://ns.servicebus.windows.net"
FACTS = Facts(address=ADDRESS, counts=Counts())


def entry_of(description: XmlElement, path: str = "q") -> str:
    """Return the document that describes something."""
    return entry_text(
        AtomEntry(
            url=f"https://ns.servicebus.windows.net/{path}?api-version=2021-05&x=1",
            title=path,
            published="2026-11-02T09:14:03.120Z",
            updated="2026-11-02T09:14:03.120Z",
            description=description,
        ),
        "ns",
    )


def identity(entity: model.Entity) -> dict[str, str]:
    """Return what a request's path says of an entity."""
    if isinstance(entity, model.Subscription):
        return {"topic": entity.topic, "name": entity.name}
    return {"name": entity.name}


def bare(entity: model.Entity) -> model.Entity:
    """Return an entity as its description has it: the size is that of all partitions."""
    changes: dict[str, Any] = {"incarnation": ""}
    if isinstance(entity, model.Subscription):
        changes["rules"] = (model.DEFAULT_RULE,)
    if isinstance(entity, model.Topic):
        changes["subscriptions"] = ()
    if isinstance(entity, model.Queue | model.Topic):
        changes["max_size_mb"] = capacity_mb(entity)
    return dataclasses.replace(entity, **changes)


def described(body: str, kind: str = "QueueDescription") -> model.Entity:
    """Read a queue that a client describes with this body."""
    text = (
        f'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><{kind} '
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
        f'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{body}</{kind}></content></entry>'
    )
    return read_entity(read_description(text.encode()), {"name": "q"})


def sdk_of(text: str, kind: type[Any]) -> Any:
    """Return what Python's SDK reads."""
    return kind.deserialize(ElementTree.fromstring(text))


@SETTINGS
@given(namespaces())
def test_every_entity_comes_back(namespace: model.Namespace) -> None:
    """All properties and authorization rules of queues, topics and subscriptions."""
    for entity in entities(namespace):
        text = entry_of(entity_node(entity, FACTS))
        assert read_entity(read_description(text.encode()), identity(entity)) == bare(entity)


@SETTINGS
@given(namespaces())
def test_every_rule_comes_back(namespace: model.Namespace) -> None:
    """Filters, the types of their values, and actions."""
    for topic in namespace.topics:
        for rule in (rule for each in topic.subscriptions for rule in each.rules):
            text = entry_of(rule_node(rule, ""))
            assert read_rule(read_description(text.encode()), rule.name) == rule


@SETTINGS
@given(namespaces())
def test_the_sdk_reads_and_writes_the_same_queue(namespace: model.Namespace) -> None:
    """Python's own (de)serialiser is the witness: what it reads and sends back is the queue."""
    for queue in namespace.queues:
        read = sdk_of(entry_of(entity_node(queue, FACTS)), models.QueueDescriptionEntry)
        properties = management.QueueProperties._from_internal_entity(
            queue.name, read.content.queue_description
        )
        assert properties.max_delivery_count == queue.max_delivery_count
        assert properties.user_metadata == (queue.user_metadata or None)
        sent = models.CreateQueueBody(
            content=models.CreateQueueBodyContent(
                queue_description=properties._to_internal_entity("ns")
            )
        ).serialize(is_xml=True)
        description = read_description(ElementTree.tostring(sent, encoding="utf-8"))
        assert read_entity(description, {"name": queue.name}) == bare(queue)


def as_read(pairs: tuple[tuple[str, object], ...]) -> dict[str, object]:
    """Return values as the SDK reads them: an empty text as None."""
    return {name: None if value == "" else value for name, value in pairs}


# Python 3.12 and newer warn of how the SDK itself asks an element for its truth.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:azure")
@SETTINGS
@given(namespaces())
def test_the_sdk_reads_the_same_rule(namespace: model.Namespace) -> None:
    """Expressions, parameters and properties with their types."""
    for topic in namespace.topics:
        for rule in (rule for each in topic.subscriptions for rule in each.rules):
            text = entry_of(rule_node(rule, "2026-11-02T09:14:03Z"))
            read = sdk_of(text, models.RuleDescriptionEntry)
            found = management.RuleProperties._from_internal_entity(
                rule.name, read.content.rule_description
            )
            deserialize_rule_key_values(ElementTree.fromstring(text), found)
            match rule.filter:
                case model.SqlFilter():
                    assert found.filter.sql_expression == rule.filter.expression
                    assert found.filter.parameters == as_read(rule.filter.parameters)
                case model.CorrelationFilter():
                    assert found.filter.properties == as_read(rule.filter.properties)
                    assert found.filter.label == rule.filter.label
                case model.TrueFilter():
                    assert isinstance(found.filter, management.TrueRuleFilter)
                case model.FalseFilter():
                    assert isinstance(found.filter, management.FalseRuleFilter)
            assert (found.action.sql_expression if found.action else "") == rule.action
            if rule.action:
                assert (found.action.parameters or {}) == as_read(rule.action_parameters)


def test_elements_are_those_of_the_service_in_its_order() -> None:
    """Each property of the model has its element, and each element that is told is known."""
    for kind, names in ELEMENTS.items():
        assert len(set(names)) == len(names)
        assert set(names_of(kind)) <= set(names)
        entity: model.Entity = {
            EntityKind.QUEUE: model.Queue(name="q", forward_to="t", user_metadata="m",
                                    forward_dead_lettered_messages_to="t"),
            EntityKind.TOPIC: model.Topic(name="q", user_metadata="m"),
            EntityKind.SUBSCRIPTION: model.Subscription(
                topic="t", name="q", forward_to="t", user_metadata="m",
                forward_dead_lettered_messages_to="t"),
        }[kind]  # fmt: skip
        assert kind_of(entity) is kind
        assert tuple(node.name for node in entity_node(entity, FACTS).children) == names
        assert set(names) - set(PROPERTIES) <= READ_ONLY | {
            "AuthorizationRules", "EnableSubscriptionPartitioning", "IsAnonymousAccessible",
            "IsClientAffine", "SupportOrdering",
        }  # fmt: skip


def test_counts_are_told() -> None:
    """Each state in its element; deferred messages are in the total alone."""
    counts = Counts(active=4, dead_letter=1, scheduled=2, deferred=3, size_bytes=99)
    node = entity_node(model.Queue(name="q"), Facts(address=ADDRESS, counts=counts))
    read = sdk_of(entry_of(node), models.QueueDescriptionEntry)
    found = management.QueueRuntimeProperties._from_internal_entity(
        "q", read.content.queue_description
    )

    assert (found.active_message_count, found.dead_letter_message_count) == (4, 1)
    assert (found.scheduled_message_count, found.transfer_message_count) == (2, 0)
    assert (found.total_message_count, found.size_in_bytes) == (10, 99)


def test_old_counts_and_unknown_ones_are_told_as_such() -> None:
    """By the entity's availability; what is not known has no element, rather than zero."""

    def described_by(counts: Counts | None) -> dict[str, str]:
        node = entity_node(model.Queue(name="q"), Facts(address=ADDRESS, counts=counts))
        return {each.name: each.text for each in node.children}

    old = described_by(Counts(active=4, is_old=True, size_bytes=None))
    assert (old["EntityAvailabilityStatus"], old["MessageCount"]) == ("Limited", "4")
    assert "SizeInBytes" not in old
    unknown = described_by(None)
    assert unknown["EntityAvailabilityStatus"] == "Available"
    assert not {"SizeInBytes", "MessageCount", "CountDetails"} & unknown.keys()


def test_what_is_left_out_has_the_default_of_the_service() -> None:
    """A queue of an empty description."""
    assert described("") == model.Queue(name="q")
    assert described('<UserMetadata i:nil="true"/><ForwardTo/>') == model.Queue(name="q")


def test_an_update_keeps_what_is_fixed_at_creation() -> None:
    """A fixed property may be left out; the parts that made the entity itself stay."""
    there = model.Queue(
        name="q", requires_session=True, max_delivery_count=3, incarnation="a", created_at="b"
    )
    sent = read_description(
        entry_of(XmlElement("QueueDescription", attributes=_NAMESPACE)).encode()
    )

    assert read_entity(sent, {"name": "q"}, there) == model.Queue(
        name="q", requires_session=True, incarnation="a", created_at="b"
    )


_NAMESPACE = {"xmlns": "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"}


@pytest.mark.parametrize(
    "text",
    ["P10675199DT2H48M5.4775807S", "P10675199DT2H48M5.477539S", "P10675199DT2H48M5.477S"],
)
def test_for_ever_is_for_ever_in_every_spelling(text: str) -> None:
    """SDKs round the longest duration, each in its way."""
    queue = described(f"<AutoDeleteOnIdle>{text}</AutoDeleteOnIdle>")

    assert isinstance(queue, model.Queue)
    assert queue.auto_delete_on_idle_ms == MAX_MS
    node = entity_node(queue, FACTS)
    assert {"AutoDeleteOnIdle": "P10675199DT2H48M5.4775807S"}.items() <= {
        each.name: each.text for each in node.children
    }.items()


@SETTINGS
@given(st.integers(5_000, 300_000))
def test_durations_are_read_back_as_given(duration_ms: int) -> None:
    """To the millisecond, by Python's SDK."""
    node = entity_node(model.Queue(name="q", lock_duration_ms=duration_ms), FACTS)
    read = sdk_of(entry_of(node), models.QueueDescriptionEntry)

    assert read.content.queue_description.lock_duration == timedelta(milliseconds=duration_ms)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<LockDuration>PT9M</LockDuration>", "LockDuration is PT9M"),
        ("<LockDuration>soon</LockDuration>", "'soon' of the property LockDuration"),
        ("<MaxDeliveryCount>0</MaxDeliveryCount>", "MaxDeliveryCount is 0"),
        ("<RequiresSession>perhaps</RequiresSession>", "it is true or false"),
        ("<Status>Deleting</Status>", "it is one of Active"),
        (f"<UserMetadata>{'x' * 1025}</UserMetadata>", "length of UserMetadata is 1025"),
        ("<IsAnonymousAccessible>true</IsAnonymousAccessible>", "every client needs a key"),
        ("<AuthorizationRules><R><KeyName>a</KeyName></R></AuthorizationRules>", "rights of"),
        ("<AuthorizationRules><R/></AuthorizationRules>", "needs a KeyName"),
    ],
)
def test_bad_values_are_refused_by_name(body: str, message: str) -> None:
    """The error names the property and what it takes."""
    with pytest.raises(ServiceBusError, match=message):
        described(body)


def of_a_number(number: int) -> tuple[model.Rule, str]:
    """Return a rule that compares with a number, and the document that describes it."""
    rule = model.Rule(name="r", filter=model.CorrelationFilter(properties=(("n", number),)))
    return rule, entry_of(rule_node(rule, ""))


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 1_234_567_890_123_456_789])
def test_every_long_of_a_rule_comes_back(number: int) -> None:
    """Of 19 digits, too, as ids have them that are made of the time."""
    rule, text = of_a_number(number)

    assert read_rule(read_description(text.encode()), "r") == rule


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**19])
def test_a_number_of_a_rule_beyond_a_long_is_refused(number: int) -> None:
    """No client has a type for it."""
    _, text = of_a_number(number)

    with pytest.raises(ArgumentError, match="it is a whole number"):
        read_rule(read_description(text.encode()), "r")


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
def test_the_size_of_a_partitioned_entity_is_read_back_sixteen_fold(kind: str) -> None:
    """As the sum of its partitions (Azure's Go live test CreateQueue_Standard).

    What was read back, and is sent again with an update, is the same size.
    """
    root = f"{kind}Description"
    size = "<MaxSizeInMegabytes>%d</MaxSizeInMegabytes>"
    partitioned = "<EnablePartitioning>true</EnablePartitioning>"
    made = described(size % 2048 + partitioned, root)
    assert isinstance(made, model.Queue | model.Topic)
    assert (made.max_size_mb, capacity_mb(made)) == (2048, 32_768)
    text = entry_of(entity_node(made, FACTS))
    assert size % 32_768 in text
    again = read_entity(read_description(text.encode()), {"name": "q"}, made)
    assert (again.max_size_mb, capacity_mb(again)) == (2048, 32_768)  # type: ignore[union-attr]

    plain = described(size % 2048, root)
    assert size % 2048 in entry_of(entity_node(plain, FACTS))


def test_a_large_message_is_premium() -> None:
    """Other tiers tell 256, and refuse another."""
    queue = described("<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>")
    check_message_size(queue, "ns", model.Tier.STANDARD)

    larger = described("<MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes>")
    check_message_size(larger, "ns", model.Tier.PREMIUM)
    with pytest.raises(ArgumentError, match="Premium namespace only"):
        check_message_size(larger, "ns", model.Tier.STANDARD)


@pytest.mark.parametrize("tier", model.Tier)
def test_administration_takes_whole_gigabytes(tier: model.Tier) -> None:
    """One to five, in Premium up to 80; what a file has said stays with another change."""
    for size_mb in (1_024, 2_048, 5_120):
        check_capacity(model.Queue(name="q", max_size_mb=size_mb), None, tier)
    for size_mb in (10_240, 81_920):
        large = model.Topic(name="t", max_size_mb=size_mb)
        if tier is model.Tier.PREMIUM:
            check_capacity(large, None, tier)
            continue
        with pytest.raises(ArgumentError, match=f"value {size_mb} of the property MaxSizeIn"):
            check_capacity(large, None, tier)
    odd = model.Queue(name="q", max_size_mb=100)
    with pytest.raises(ArgumentError, match="MaxSizeInMegabytes"):
        check_capacity(odd, None, tier)
    check_capacity(odd, odd, tier)
    check_capacity(model.Subscription(topic="t", name="s"), None, tier)


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
def test_empty_metadata_is_read_back_as_empty(kind: str) -> None:
    """Unlike none, and also out of the definition that RabbitMQ keeps."""
    root = f"{kind}Description"
    empty = described("<UserMetadata></UserMetadata>", root)
    assert "<UserMetadata />" in entry_of(entity_node(empty, FACTS))
    assert from_json(to_json(empty)) == empty
    for none in ("", '<UserMetadata i:nil="true"/>'):
        entity = described(none, root)
        assert "UserMetadata" not in entry_of(entity_node(entity, FACTS))
        assert to_json(entity).keys() == to_json(empty).keys() - {"hasEmptyUserMetadata"}


def test_an_older_version_knows_no_message_size() -> None:
    """It is not told there, refused when it is given, and an update leaves it as it is."""
    old, size = "2017-04", "<MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes>"
    queue = described(size)
    assert size in entry_of(entity_node(queue, replace(FACTS, version="2021-05")))
    assert "MaxMessageSize" not in entry_of(entity_node(queue, replace(FACTS, version=old)))

    text = entry_of(entity_node(queue, replace(FACTS, version=old)))
    changed = read_entity(read_description(text.encode()), {"name": "q"}, queue, version=old)
    assert changed == queue
    given = read_description(entry_of(entity_node(queue, FACTS)).encode())
    with pytest.raises(ArgumentError, match="MaxMessageSizeInKilobytes needs api-version 2021-05"):
        read_entity(given, {"name": "q"}, version=old)


def test_authorization_rules_have_dates() -> None:
    """When they were made and last changed, as far as that is known; definitions keep them."""
    made, changed = "2026-11-02T09:14:03Z", "2026-11-03T09:14:03Z"
    rules = tuple(
        model.AuthorizationRule(
            name=name,
            primary_key="k",
            secondary_key="l",
            rights=frozenset({model.Right.SEND}),
            created_at=made_at,
            modified_at=changed_at,
        )
        for name, made_at, changed_at in (("new", made, changed), ("old", "", ""))
    )
    queue = model.Queue(name="q", authorization_rules=rules)
    text = entry_of(entity_node(queue, FACTS))
    times = f"<CreatedTime>{made}</CreatedTime><ModifiedTime>{changed}</ModifiedTime>"
    assert text.count("CreatedTime>") == 2
    assert f"</Rights>{times}<KeyName>new" in text
    kept = from_json(to_json(queue))
    assert isinstance(kept, model.Queue)
    assert [(each.created_at, each.modified_at) for each in kept.authorization_rules] == [
        (made, changed),
        ("", ""),
    ]


def test_a_feed_has_two_links_when_there_is_more() -> None:
    """Python's SDK takes the second link as the next page."""
    entry = AtomEntry(
        url="https://ns/q", title="q", published="2026-11-02T09:14:03Z",
        updated="2026-11-02T09:14:03Z", description=entity_node(model.Queue(name="q"), FACTS),
    )  # fmt: skip
    url = "https://ns/$Resources/queues?$skip=100&$top=100"
    more = feed_text("queues", "https://ns/", "2026-11-02T09:14:03Z", [entry], "ns", url)
    last = feed_text("queues", "https://ns/", "2026-11-02T09:14:03Z", [entry], "ns")

    read = sdk_of(more, models.QueueDescriptionFeed)
    assert [each.href for each in read.link] == ["https://ns/", url]
    assert [each.content.queue_description.max_delivery_count for each in read.entry] == [10]
    assert len(sdk_of(last, models.QueueDescriptionFeed).link) == 1


def test_a_namespace_is_described() -> None:
    """Its tier, its name and what it is for."""
    node = namespace_node(model.Namespace(tier=model.Tier.PREMIUM), "ns")
    read = sdk_of(entry_of(node), models.NamespacePropertiesEntry)
    found = read.content.namespace_properties

    assert (found.messaging_sku, found.name, found.namespace_type) == ("Premium", "ns", "Messaging")
    assert found.messaging_units == 1
