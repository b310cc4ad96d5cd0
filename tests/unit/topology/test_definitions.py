"""Entities as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from bridge.model import entity as model
from bridge.model.errors import ArgumentError, ServiceBusError
from bridge.topology import definitions, description
from bridge.topology.resources import Value
from tests.unit.topology.entities import namespaces


@given(namespaces())
def test_any_entity_survives_writing_and_reading(namespace: model.Namespace) -> None:
    """Reading the written JSON text gives the same namespace, in every field."""
    forms = [
        json.loads(json.dumps(definitions.to_json(entity)))
        for entity in definitions.entities(namespace)
    ]
    base = definitions.namespace_from_json(
        json.loads(json.dumps(definitions.namespace_to_json(namespace)))
    )
    assert definitions.assemble(base, map(definitions.from_json, forms)) == namespace
    assert [definitions.unknown_fields(form) for form in forms] == [()] * len(forms)


def test_a_definition_can_be_as_short_as_a_person_writes_it() -> None:
    """Omitted fields have Service Bus's defaults."""
    written = {"kind": "queue", "name": "Orders", "defaultMessageTimeToLive": "PT1H"}
    expected = model.Queue(name="Orders", default_message_time_to_live_ms=3_600_000)
    assert definitions.from_json(written) == expected


def test_an_entity_without_an_incarnation_has_one_of_its_path() -> None:
    """An older version or a person wrote it; it stays the same, and is not written."""
    queue = model.Queue(name="Orders")
    assert "incarnation" not in definitions.to_json(queue)
    assert definitions.incarnation_of(queue) == definitions.incarnation_of(
        model.Queue(name="orders", max_delivery_count=3)
    )
    assert definitions.incarnation_of(queue) != definitions.incarnation_of(
        model.Queue(name="other")
    )


def test_an_entity_that_is_there_keeps_its_incarnation() -> None:
    """Only what is new gets one."""
    there = model.Namespace(
        queues=(model.Queue(name="old"), model.Queue(name="Orders", incarnation="one"))
    )
    wanted = model.Namespace(
        queues=tuple(model.Queue(name=name) for name in ("new", "old", "orders"))
    )
    found = definitions.with_incarnations(wanted, there, lambda: "made")
    assert [each.incarnation for each in found.queues] == ["made", "", "one"]


def test_a_rule_keeps_the_time_at_which_it_was_made() -> None:
    """When it is written and read, and changed by a file that knows no times; others are new."""
    old = model.Rule(name="old", filter=model.TrueFilter(), created_at="2026-11-02T09:14:03Z")
    first = model.Subscription(topic="t", name="s", rules=(model.DEFAULT_RULE, old))
    read = definitions.from_json(definitions.to_json(first))
    assert isinstance(read, model.Subscription)
    assert [each.created_at for each in read.rules] == ["", "2026-11-02T09:14:03Z"]
    there = model.Namespace(topics=(model.Topic(name="t", subscriptions=(read,)),))
    rules = (
        model.DEFAULT_RULE,
        model.Rule(name="OLD", filter=model.FalseFilter()),
        replace(old, name="n"),
    )
    wanted = replace(first, rules=tuple(replace(each, created_at="") for each in rules))
    found = definitions.with_incarnations(
        model.Namespace(topics=(model.Topic(name="t", subscriptions=(wanted,)),)),
        there,
        made_at="2026-11-27T00:00:00Z",
    )
    (kept,) = found.topics[0].subscriptions
    assert [each.created_at for each in kept.rules] == [
        "",
        "2026-11-02T09:14:03Z",
        "2026-11-27T00:00:00Z",
    ]


FOLDED = (
    model.Queue(name="orders", folds_session_ids=True),
    model.Topic(name="events", folds_session_ids=True),
    model.Subscription(topic="events", name="audit", folds_session_ids=True),
)


@pytest.mark.parametrize("entity", FOLDED)
def test_an_entity_that_folds_session_ids_is_of_no_kind_to_older_versions(
    entity: model.Entity,
) -> None:
    """Which know three kinds, and leave an entity of no kind to newer ones."""
    form = definitions.to_json(entity)
    assert form["kind"] not in ("queue", "topic", "subscription")
    assert definitions.from_json(form) == entity
    assert not definitions.unknown_fields(form)
    older = definitions.to_json(replace(entity, folds_session_ids=False))
    assert older["kind"] in ("queue", "topic", "subscription")
    assert not definitions.from_json(older).folds_session_ids


def test_new_entities_fold_session_ids_and_others_stay_as_they_were_made() -> None:
    """A subscription does what its topic does: who numbers the topic chooses its shards."""
    old, new = model.Topic(name="old"), model.Topic(name="new", folds_session_ids=True)
    there = model.Namespace(queues=(model.Queue(name="old-queue"),), topics=(old, new))
    wanted = model.Namespace(
        queues=(model.Queue(name="old-queue"), model.Queue(name="queue")),
        topics=tuple(
            model.Topic(name=name, subscriptions=(model.Subscription(topic=name, name="s"),))
            for name in ("made", "new", "old")
        ),
    )
    found = definitions.with_incarnations(wanted, there, folds_session_ids=True)
    assert {each.path: each.folds_session_ids for each in definitions.entities(found)} == {
        "old-queue": False,
        "queue": True,
        "made": True,
        "made/Subscriptions/s": True,
        "new": True,
        "new/Subscriptions/s": True,
        "old": False,
        "old/Subscriptions/s": False,
    }


def test_a_client_of_any_version_reads_the_description_of_an_entity() -> None:
    """The bridge alone folds session ids."""
    (queue, *_) = FOLDED
    raw = description.encode(
        queue,
        rabbitmq_version="4.3.0",
        rabbitmq_bytes_max=1 << 24,
        is_clustered=False,
        tier=model.Tier.STANDARD,
        is_peeked=False,
        full="",
    )
    assert json.loads(raw)["entity"]["kind"] == "queue"
    assert description.decode(raw).entity == replace(queue, folds_session_ids=False)


def test_a_field_of_a_newer_version_is_named_and_has_no_effect() -> None:
    """A bridge reads what a newer one wrote, and says what it left out."""
    form = {**definitions.to_json(model.Queue(name="orders")), "schema": 2, "colour": "red"}
    assert definitions.from_json(form) == model.Queue(name="orders")
    assert [finding.property for finding in definitions.unknown_fields(form)] == ["colour"]


@pytest.mark.parametrize("wrong", ["orders", 5, [["name", "orders"]]])
def test_a_definition_is_an_object(wrong: Value) -> None:
    """Any other JSON is refused."""
    with pytest.raises(ServiceBusError, match="object"):
        definitions.from_json(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "relay"},
        {"name": 5},
        {"name": "-"},
        {"lockDuration": 60},
        {"lockDuration": "soon"},
        {"lockDuration": "PT10M"},
        {"maxDeliveryCount": "10"},
        {"maxDeliveryCount": True},
        {"status": "Asleep"},
        {"authorizationRules": [{"name": "r", "primaryKey": "k", "rights": ["Read"]}]},
        {"authorizationRules": ["r"]},
    ],
)
def test_a_malformed_definition_is_refused(wrong: dict[str, Value]) -> None:
    """A value of the wrong type, or outside Service Bus's range, is an error in words."""
    with pytest.raises(ServiceBusError):
        definitions.from_json({**definitions.to_json(model.Queue(name="orders")), **wrong})


def test_a_definition_without_a_name_is_refused() -> None:
    """A required field that is missing is an error in words."""
    with pytest.raises(ServiceBusError, match="name"):
        definitions.from_json({"kind": "queue"})


def test_parameter_names_are_told_apart_by_vhost_and_fit_into_an_atom() -> None:
    """Case does not matter; vhosts do; no name is longer than RabbitMQ can keep."""
    assert definitions.parameter_name("/", "Orders") == "busbridge.entity.%2F:orders"
    assert definitions.parameter_name("a", "b") != definitions.parameter_name("b", "a")
    long = [definitions.parameter_name(v, "o" * 200 + e) for v in ("v" * 300, "w") for e in "12"]
    assert len(set(long)) == 4
    assert all(len(name) <= 255 for name in long)
    assert all(
        definitions.parameter_name("v" * 300, e).startswith(definitions.parameter_prefix("v" * 300))
        for e in ("a", "b" * 260)
    )


@pytest.mark.parametrize("where", ["the whole", "a field"])
def test_definition_that_nests_without_end(where: str) -> None:
    """A definition of 20,000 levels is one bad definition, and no fault of the bridge's."""
    deep: Any = []
    for _ in range(20_000):
        deep = [deep]
    form = (
        deep if where == "the whole" else {"kind": "queue", "name": "q", "maxDeliveryCount": deep}
    )

    with pytest.raises(ArgumentError, match="64 levels at most"):
        definitions.from_json(form)
