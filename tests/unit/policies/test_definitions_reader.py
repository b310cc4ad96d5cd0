"""RabbitMQ definitions files, the bridge's own and foreign ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from bridge.model import entity as model
from bridge.topology import definitions as stored
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_bridge
from bridge.topology.plain import compile_plain
from policies.errors import ReadError
from policies.readers import read
from policies.writers import definitions as written
from tests.unit.topology.entities import namespaces


def own(namespace: model.Namespace, *vhosts: str) -> str:
    """Return a definitions file with a namespace in each vhost."""
    parameters = [
        {"name": each.name, "value": each.value}
        for vhost in vhosts
        for each in stored.parameters(namespace, vhost)
    ]
    return json.dumps({"rabbitmq_version": "4.0.5", "global_parameters": parameters})


@settings(max_examples=50, deadline=None)
@given(namespaces())
def test_what_the_bridge_stores_comes_back_exactly(namespace: model.Namespace) -> None:
    """Any namespace, every field, whatever the vhost's name."""
    assert namespace == read(own(namespace, "a b/c%"), "definitions.json").namespace


def test_one_of_several_vhosts_must_be_chosen() -> None:
    """A file of a whole broker can hold several namespaces."""
    namespace = model.Namespace(queues=(model.Queue(name="q"),))

    with pytest.raises(ReadError, match="namespaces in several vhosts: '/', 'b'"):
        read(own(namespace, "/", "b"), "d.json")
    assert namespace == read(own(namespace, "/", "b"), "d.json", vhost="b").namespace


def test_a_stored_definition_that_is_malformed_is_refused() -> None:
    """With the entity's name and the line."""
    document = json.loads(own(model.Namespace(queues=(model.Queue(name="orders"),)), "/"))
    document["global_parameters"][1]["value"]["maxDeliveryCount"] = "ten"
    document["global_parameters"][1]["value"]["shiny"] = 1

    with pytest.raises(ReadError) as caught:
        read(json.dumps(document, indent=1), "d.json")

    assert "$.global_parameters[1].value: The definition of 'orders': maxDeliveryCount is" in str(
        caught.value
    )


def foreign(*, version: str = "4.0.5", **parts: Any) -> str:
    """Return a definitions file of somebody else's vhost."""
    found: dict[str, Any] = {"rabbitmq_version": version, "queues": [], "exchanges": []}
    found |= parts
    for part in ("queues", "exchanges", "bindings", "policies"):
        for item in found.get(part, []):
            item.setdefault("vhost", "shop")
    return json.dumps(found)


def queue(name: str, kind: str = "quorum", **arguments: Any) -> dict[str, Any]:
    """Return a queue; arguments are written with `_` for `-`."""
    given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return {"name": name, "durable": True, "arguments": {"x-queue-type": kind, **given}}


def grades(text: str) -> list[tuple[str, str, str]]:
    """Return what a reading finds."""
    found = read(text, "d.json").findings
    return [(each.entity, each.property, each.grade) for each in found]


def test_settings_of_a_foreign_queue_become_properties() -> None:
    """TTL, delivery limit, size and dead-letter exchange."""
    text = foreign(
        queues=[
            queue(
                "orders",
                message_ttl=60_000,
                delivery_limit=4,
                max_length_bytes=2 * 1024**3,
                expires=600_000,
                dead_letter_exchange="",
                dead_letter_routing_key="failed",
            ),
            queue("failed", delivery_limit=4),
        ]
    )

    reading = read(text, "d.json")

    assert (
        model.Namespace(
            name="shop",
            queues=(
                model.Queue(
                    name="orders",
                    default_message_time_to_live_ms=60_000,
                    max_delivery_count=5,
                    max_size_mb=2048,
                    auto_delete_on_idle_ms=600_000,
                    dead_lettering_on_message_expiration=True,
                    forward_dead_lettered_messages_to="failed",
                ),
                model.Queue(name="failed", max_delivery_count=5),
            ),
        )
        == reading.namespace
    )
    assert reading.findings == ()


def test_the_policy_of_the_highest_priority_applies_and_the_smaller_limit_wins() -> None:
    """As RabbitMQ merges a policy with arguments."""
    policies = [
        {"name": "low", "pattern": "^orders$", "definition": {"message-ttl": 1000}, "priority": 1},
        {"name": "high", "pattern": "ord", "definition": {"message-ttl": 5000, "delivery-limit": 9},
         "priority": 2, "apply-to": "queues"},
        {"name": "other", "pattern": ".*", "definition": {"message-ttl": 1}, "priority": 9,
         "apply-to": "exchanges"},
    ]  # fmt: skip
    text = foreign(queues=[queue("orders", delivery_limit=3)], policies=policies)

    (found,) = read(text, "d.json").namespace.queues

    assert (found.default_message_time_to_live_ms, found.max_delivery_count) == (5000, 4)


def test_an_operator_policy_lowers_what_a_queue_has() -> None:
    """It is among the parameters; a pattern that only Erlang reads is a finding."""
    policies = [{"name": "odd", "pattern": "(?|a)", "definition": {"message-ttl": 1}}]
    ceiling = {"pattern": ".*", "definition": {"message-ttl": 5000, "delivery-limit": 9}}
    parameters = [{"vhost": "shop", "component": "operator_policy", "name": "o", "value": ceiling}]
    text = foreign(
        queues=[queue("q", message_ttl=9000, delivery_limit=3)],
        policies=policies,
        parameters=parameters,
    )

    reading = read(text, "d.json")

    (found,) = reading.namespace.queues
    assert (found.default_message_time_to_live_ms, found.max_delivery_count) == (5000, 4)
    assert [each.property for each in reading.findings] == ["pattern"]


@pytest.mark.parametrize(
    ("version", "kind", "count", "is_exact"),
    [
        ("3.10.8", "quorum", model.DELIVERY_COUNT_MAX, False),
        ("4.0.5", "quorum", 21, True),
        ("4.0.5", "classic", model.DELIVERY_COUNT_MAX, False),
    ],
)
def test_the_default_limit_depends_on_version_and_type(
    version: str, kind: str, count: int, is_exact: bool
) -> None:
    """4.x gives a message up after 21 deliveries; others never do."""
    reading = read(foreign(version=version, queues=[queue("q", kind)]), "d.json")

    assert count == reading.namespace.queues[0].max_delivery_count
    assert is_exact == (reading.findings == ())


@pytest.mark.parametrize(
    ("limit", "count", "is_exact"),
    [
        (2_000, 2_001, True),
        (2**31 - 2, 2**31 - 1, True),
        (2**31 - 1, 2**31 - 1, False),
        (-1, 2**31 - 1, False),
    ],
)
def test_a_limit_is_one_delivery_fewer_up_to_the_largest_of_azure(
    limit: int, count: int, is_exact: bool
) -> None:
    """Beyond that, and below 0, RabbitMQ has no limit, for which Azure has no word."""
    reading = read(foreign(queues=[queue("q", delivery_limit=limit)]), "d.json")

    assert count == reading.namespace.queues[0].max_delivery_count
    assert is_exact == (reading.findings == ())


def test_fanout_and_headers_exchanges_become_topics() -> None:
    """Each binding to a queue is a subscription that forwards to it."""
    text = foreign(
        queues=[queue("a", delivery_limit=9), queue("b", delivery_limit=9)],
        exchanges=[{"name": "all", "type": "fanout"}, {"name": "some", "type": "headers"}],
        bindings=[
            binding("all", "a"),
            binding("all", "b"),
            binding("some", "a", **{"x-match": "all", "color": "red"}),
        ],
    )

    reading = read(text, "d.json")

    assert {
        "all/Subscriptions/a": ("a", model.TrueFilter()),
        "all/Subscriptions/b": ("b", model.TrueFilter()),
        "some/Subscriptions/a": ("a", model.CorrelationFilter(properties=(("color", "red"),))),
    } == {
        each.path: (each.forward_to, each.rules[0].filter)
        for topic in reading.namespace.topics
        for each in topic.subscriptions
    }
    assert reading.findings == ()


def binding(source: str, destination: str, **arguments: Any) -> dict[str, Any]:
    """Return a binding to a queue."""
    return {
        "source": source,
        "destination": destination,
        "destination_type": "queue",
        "routing_key": "",
        "arguments": arguments,
    }


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ({"queues": [queue("log", "stream")]}, ("log", "x-queue-type", "lost")),
        ({"queues": [queue("has space", delivery_limit=1)]}, ("has space", "name", "lost")),
        ({"queues": [queue("q", delivery_limit=1, max_priority=5)]}, ("q", "max-priority", "lost")),
        ({"queues": [queue("q", delivery_limit=1, max_length=5)]}, ("q", "max-length", "lost")),
        ({"queues": [queue("q", delivery_limit=1, single_active_consumer=True)]},
         ("q", "single-active-consumer", "lost")),
        ({"queues": [queue("q", delivery_limit=1, message_ttl=5)]},
         ("q", "message-ttl", "approximate")),
        ({"queues": [queue("q", delivery_limit=1, expires=5)]}, ("q", "expires", "approximate")),
        ({"queues": [queue("q", delivery_limit=1, max_length_bytes=5)]},
         ("q", "MaxSizeInMegabytes", "approximate")),
        ({"queues": [queue("q", delivery_limit=-1)]}, ("q", "MaxDeliveryCount", "approximate")),
        ({"queues": [queue("q", delivery_limit=1, dead_letter_exchange="gone")]},
         ("q", "ForwardDeadLetteredMessagesTo", "approximate")),
        ({"queues": [queue("q", delivery_limit=1) | {"auto_delete": True}]},
         ("q", "auto_delete", "lost")),
        ({"queues": [queue("q", delivery_limit=1)], "exchanges": [{"name": "e", "type": "topic"}],
          "bindings": [binding("e", "q")]}, ("e", "type", "lost")),
        ({"queues": [queue("q", delivery_limit=1)], "exchanges": [{"name": "e", "type": "fanout"}],
          "bindings": [binding("e", "gone")]}, ("e", "binding", "lost")),
    ],
)  # fmt: skip
def test_what_service_bus_has_no_word_for_is_said(
    parts: dict[str, Any], found: tuple[str, str, str]
) -> None:
    """By queue and setting."""
    assert found in grades(foreign(**parts))


def test_a_file_of_several_vhosts_needs_one_to_be_chosen() -> None:
    """Unless there is only one."""
    text = foreign(queues=[queue("a") | {"vhost": "x"}, queue("b") | {"vhost": "y"}])

    with pytest.raises(ReadError, match="The file has several vhosts: 'x', 'y'"):
        read(text, "d.json")
    with pytest.raises(ReadError, match="The file has no vhost 'z'"):
        read(text, "d.json", vhost="z")
    assert [q.name for q in read(text, "d.json", vhost="y").namespace.queues] == ["b"]


def test_what_was_written_for_rabbitmq_alone_is_read_by_its_names() -> None:
    """Subscriptions, their rules, sizes and dead letters, without stored definitions."""
    red = model.Rule(name="red", filter=model.CorrelationFilter(properties=(("color", "red"),)))
    namespace = model.Namespace(
        queues=(
            model.Queue(name="errors"),
            model.Queue(
                name="orders",
                default_message_time_to_live_ms=60_000,
                dead_lettering_on_message_expiration=True,
                max_delivery_count=5,
            ),
            model.Queue(name="returns", forward_dead_lettered_messages_to="errors"),
        ),
        topics=(
            model.Topic(
                name="events",
                max_size_mb=2048,
                subscriptions=(
                    model.Subscription(topic="events", name="all"),
                    model.Subscription(topic="events", name="none", rules=(FALSE,)),
                    model.Subscription(topic="events", name="red", rules=(red,)),
                ),
            ),
        ),
    )
    topology = compile_plain(namespace, Capabilities.of("4.0"))
    document = {"rabbitmq_version": "4.0.5"} | written.document(topology, "/")

    reading = read(json.dumps(document), "d.json")

    assert reading.findings == ()
    ordered = stored.assemble(reading.namespace, stored.entities(reading.namespace))
    assert namespace.queues == ordered.queues
    assert [topic.name for topic in ordered.topics] == ["events"]
    assert ordered.topics[0].max_size_mb == 2048
    assert [
        ("all", model.TrueFilter()),
        ("none", model.FalseFilter()),
        ("red", red.filter),
    ] == [(each.name, each.rules[0].filter) for each in ordered.topics[0].subscriptions]


FALSE = model.Rule(name="$Default", filter=model.FalseFilter())


def test_an_export_without_the_bridges_definitions_says_so() -> None:
    """A per-vhost export leaves global parameters out."""
    subscription = model.Subscription(topic="events", name="all")
    namespace = model.Namespace(
        queues=(model.Queue(name="orders", max_delivery_count=5),),
        topics=(model.Topic(name="events", subscriptions=(subscription,)),),
    )
    topology = compile_bridge(namespace, Capabilities.of("4.0"))
    document = {"rabbitmq_version": "4.0.5"} | written.document(topology, "/")
    document.pop("global_parameters", None)

    reading = read(json.dumps(document), "d.json")

    assert [each.property for each in reading.findings] == ["definitions"]
    assert "Export the whole broker." in reading.findings[0].message
    assert reading.namespace.queues[0].max_delivery_count == 5
    assert reading.namespace.topics[0].subscriptions[0].name == "all"
