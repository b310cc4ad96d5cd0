"""What an entity compiles to."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from bridge.model import entity as model
from bridge.model.duration import MAX_MS
from bridge.model.errors import EntityConflict
from bridge.model.forwarding import target_of
from bridge.topology import bridged, compiler, definitions, names
from bridge.topology.capabilities import (
    DELIVERY_LIMIT_MAX,
    TTL_MAX_MS,
    Capabilities,
    UnsupportedVersion,
)
from bridge.topology.compiler import joined
from bridge.topology.policy import Ceiling, matches
from bridge.topology.resources import Topology
from tests.unit.topology.entities import namespaces

RABBITMQ = Capabilities.of("4.3.6")


def effective(topology: Topology, queue: str) -> dict[str, object]:
    """The settings that our policies give to a queue."""
    (taken,) = [p for p in topology.policies if matches(p, queue) and not p.is_operator]
    return dict(taken.definition)


@given(namespaces())
def test_the_rules_that_every_topology_keeps(namespace: model.Namespace) -> None:
    """The facts about RabbitMQ demand these of every queue, exchange and policy."""
    topology = compiler.compile(namespace, RABBITMQ)
    queues = {queue.name: queue.arguments for queue in topology.queues}
    exchanges = {exchange.name: exchange for exchange in topology.exchanges}
    assert len(queues) == len(topology.queues)
    assert len(exchanges) == len(topology.exchanges)
    assert all(len(name.encode()) <= 255 for name in (*queues, *exchanges))
    for arguments in queues.values():
        if arguments["x-queue-type"] == "quorum":
            assert arguments["x-delivery-limit"] == 2_147_483_647
        if "x-dead-letter-exchange" in arguments:
            assert arguments["x-dead-letter-strategy"] == "at-least-once"
            assert arguments["x-overflow"] == "reject-publish"
            assert arguments["x-dead-letter-routing-key"] in queues
            source = exchanges.get(str(arguments["x-dead-letter-exchange"]))
            if source is not None:
                catching = source.arguments["alternate-exchange"]
                key = arguments["x-dead-letter-routing-key"]
                assert (catching, key, key) in {
                    (b.source, b.routing_key, b.destination) for b in topology.bindings
                }
    for binding in topology.bindings:
        assert binding.source in exchanges
        assert binding.destination in queues
    for policy in topology.policies:
        assert len(policy.pattern) <= 1_024
        time_to_live_ms = policy.definition.get("message-ttl", 1)
        assert isinstance(time_to_live_ms, int)
        assert time_to_live_ms <= TTL_MAX_MS
    for entity in definitions.entities(namespace):
        if isinstance(entity, model.Topic):
            continue
        settings = effective(topology, names.active_queue(entity.path))
        # RabbitMQ counts every holder's end, and every forwarder's.
        counts_itself = entity.requires_session or target_of(entity)
        limit = DELIVERY_LIMIT_MAX if counts_itself else entity.max_delivery_count - 1
        assert settings["delivery-limit"] == limit
    assert compiler.compile(namespace, RABBITMQ) == topology


def test_a_queue_alone_is_what_it_is_in_its_namespace() -> None:
    """One queue's resources can be had without the others; what is shared comes apart."""
    queue = model.Queue(name="Orders")
    alone = joined(bridged.queue_pieces(queue, RABBITMQ))
    shared = bridged.shared()
    whole = compiler.compile(model.Namespace(queues=(queue,)), RABBITMQ)
    assert whole.exchanges == shared.exchanges + alone.exchanges
    assert whole.queues == shared.queues + alone.queues
    assert whole.bindings == alone.bindings


def test_azures_default_time_to_live_is_in_no_policy() -> None:
    """`message-ttl` of the longest TimeSpan breaks quorum queues for good on 3.10 and 4.0."""
    for time_to_live_ms, written in ((MAX_MS, None), (TTL_MAX_MS + 1, None), (TTL_MAX_MS,) * 2):
        queue = model.Queue(name="orders", default_message_time_to_live_ms=time_to_live_ms)
        topology = compiler.compile(model.Namespace(queues=(queue,)), RABBITMQ)
        assert effective(topology, "orders").get("message-ttl") == written


def test_a_time_to_live_that_rabbitmq_cannot_hold_is_named() -> None:
    """Between RabbitMQ's longest TTL and 'for ever' there is a finding."""
    queue = model.Queue(name="orders", default_message_time_to_live_ms=TTL_MAX_MS + 1)
    findings = compiler.compile(model.Namespace(queues=(queue,)), RABBITMQ).findings
    assert [finding.property for finding in findings] == ["DefaultMessageTimeToLive"]


def test_a_subscription_lives_no_longer_than_its_topic_lets_it() -> None:
    """The TTL of a topic caps that of its subscriptions; its size is no queue's own."""
    topic = model.Topic(
        name="events",
        default_message_time_to_live_ms=5_000,
        max_size_mb=2,
        subscriptions=(model.Subscription(topic="events", name="Audit"),),
    )
    topology = compiler.compile(model.Namespace(topics=(topic,)), RABBITMQ)
    expected = {"delivery-limit": 9, "message-ttl": 5_000}
    assert expected == effective(topology, "events/subscriptions/audit")


@pytest.mark.parametrize(
    ("keeps", "destination"), [(True, "orders/$deadletterqueue"), (False, "$sb/sink")]
)
def test_expired_messages_go_where_the_entity_says(keeps: bool, destination: str) -> None:
    """DeadLetteringOnMessageExpiration decides about expiry, and about nothing else."""
    queue = model.Queue(name="orders", dead_lettering_on_message_expiration=keeps)
    found = {
        binding.arguments["x-first-death-reason"]: binding.destination
        for binding in joined(bridged.queue_pieces(queue, RABBITMQ)).bindings
        if binding.source == "orders/$dlx" and binding.destination != "orders/$moved"
    }
    dead = "orders/$deadletterqueue"
    assert {"delivery_limit": dead, "expired": destination, "rejected": dead} == found


def test_the_basic_tier_ends_at_14_days() -> None:
    """A tier's longest TTL is an operator policy; a lower ceiling of the user's wins."""
    basic = model.Namespace(tier=model.Tier.BASIC)
    *_, tier = compiler.compile(basic, RABBITMQ).policies
    assert tier.definition == {"message-ttl": 1_209_600_000}
    assert tier.is_operator
    ceiling = Ceiling(time_to_live_ms=60_000, size_bytes=5)
    *_, lower = compiler.compile(basic, RABBITMQ, ceiling=ceiling).policies
    assert lower.definition == {"max-length-bytes": 5, "message-ttl": 60_000}
    standard = compiler.compile(model.Namespace(), RABBITMQ).policies
    assert not any(each.is_operator for each in standard)


def test_entities_that_need_one_resource_are_a_conflict() -> None:
    """A queue of the name that a subscription has in RabbitMQ is refused by name."""
    namespace = model.Namespace(
        queues=(model.Queue(name="events/subscriptions/audit"),),
        topics=(
            model.Topic(
                name="events", subscriptions=(model.Subscription(topic="events", name="audit"),)
            ),
        ),
    )
    with pytest.raises(EntityConflict, match=re.escape("events/subscriptions/audit")):
        compiler.compile(namespace, RABBITMQ)


def test_capabilities_follow_the_version() -> None:
    """The differences between the versions, as measured."""
    old, middle, new = (Capabilities.of(version) for version in ("3.10.8", "4.0", "4.3.6-rc.1"))
    assert tuple(v.delivery_limit_default for v in (old, middle, new)) == (None, 20, 20)
    assert tuple(v.has_queue_consumer_timeout for v in (old, middle, new)) == (False, True, True)
    assert tuple(v.nack_counts for v in (old, middle, new)) == (True, True, False)
    assert str(old) == "RabbitMQ 3.10"


@pytest.mark.parametrize("version", ["3.9.1", "2.8", "", "four", "4"])
def test_other_versions_are_refused(version: str) -> None:
    """Too old, or no version at all."""
    with pytest.raises(UnsupportedVersion):
        Capabilities.of(version)


@pytest.mark.parametrize(
    ("version", "told"),
    [("3.10", "does not run on RabbitMQ 3.10"), ("4.0", ""), ("4.3", ""), ("9.9", "is newer")],
)
def test_a_version_that_the_bridge_does_not_run_on_or_does_not_know_is_named(
    version: str, told: str
) -> None:
    """Policies are written for it nevertheless."""
    namespace = model.Namespace(queues=(model.Queue(name="orders"),))
    topology = compiler.compile(namespace, Capabilities.of(version))
    assert topology.policies
    assert [told in finding.message for finding in topology.findings] == [True] * bool(told)


@pytest.mark.parametrize("version", ["3.10.8", "3.13.7", "2.8", "four"])
def test_an_older_version_is_not_served(version: str) -> None:
    """The bridge and its clients need 4.0; what is no version is refused, too."""
    with pytest.raises(UnsupportedVersion, match=version):
        Capabilities.served(version)
    assert Capabilities.served("4.0.5") == Capabilities.of("4.0.5")
