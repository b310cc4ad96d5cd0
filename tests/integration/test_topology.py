"""A namespace's resources in a real RabbitMQ: accepted as they are, and doing what they are for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from bridge.model import entity as model
from bridge.model.duration import MAX_MS
from bridge.topology import bridged, compiler, definitions
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX, TTL_MAX_MS, Capabilities
from bridge.topology.parts import SCHEMA_ARGUMENT, bucket_queue
from bridge.topology.resources import Topology
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually
from tests.integration.declared import count, declare, effective_settings, put_policies

NAMESPACE = model.Namespace(
    tier=model.Tier.BASIC,
    queues=(
        model.Queue(
            name="Keeps",
            dead_lettering_on_message_expiration=True,
            max_delivery_count=2,
            default_message_time_to_live_ms=1_000,
        ),
        model.Queue(name="drops.a", max_delivery_count=2, default_message_time_to_live_ms=1_000),
        model.Queue(name="forever", default_message_time_to_live_ms=MAX_MS),
        model.Queue(name="longest", default_message_time_to_live_ms=TTL_MAX_MS),
        model.Queue(name="once", max_delivery_count=1),
    ),
    topics=(
        model.Topic(
            name="events", subscriptions=(model.Subscription(topic="events", name="Audit"),)
        ),
    ),
)


@pytest.fixture
def topology(broker: Broker, vhost: str) -> Topology:
    """The namespace, compiled for this RabbitMQ."""
    compiled = compiler.compile(NAMESPACE, Capabilities.of(broker.version_text))
    return replace(compiled, parameters=definitions.parameters(NAMESPACE, vhost))


@pytest.fixture
def channel(
    broker: Broker, vhost: str, topology: Topology, pika_connection: pika.BlockingConnection
) -> Iterator[BlockingChannel]:
    """A channel with publisher confirms; everything is declared."""
    channel = pika_connection.channel()
    declare(channel, topology)
    put_policies(broker, vhost, topology)
    channel.confirm_delivery()
    yield channel
    for parameter in topology.parameters:
        name = quote(parameter.name, safe="")
        broker.management("DELETE", f"/api/global-parameters/{name}")


def publish(channel: BlockingChannel, exchange: str, key: str = "", **properties: object) -> None:
    """Publish; an unroutable message is an error."""
    kept = pika.BasicProperties(delivery_mode=2, **properties)
    channel.basic_publish(exchange, key, b"body", kept, mandatory=True)


def reasons(channel: BlockingChannel, queue: str) -> list[str]:
    """Take all messages out of a dead-letter queue; why they died."""
    found: list[str] = []
    while True:
        method, properties, _ = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(properties.headers["x-first-death-reason"])


def test_a_later_schema_can_declare_everything_again(
    channel: BlockingChannel, topology: Topology
) -> None:
    """RabbitMQ does not compare the schema version, so that no upgrade is refused because of it."""
    declare(channel, topology)
    later = replace(
        topology,
        exchanges=tuple(
            replace(each, arguments={**each.arguments, SCHEMA_ARGUMENT: 2})
            for each in topology.exchanges
        ),
        queues=tuple(
            replace(each, arguments={**each.arguments, SCHEMA_ARGUMENT: 2})
            for each in topology.queues
        ),
    )
    declare(channel, later)
    bucket = bucket_queue("Keeps", 1, 7)
    channel.queue_declare(bucket.name, durable=True, arguments=bucket.arguments)


ENTITIES = ("keeps", "drops.a", "forever", "longest", "once")
JOURNAL_BYTES = 1_073_741_824


def test_the_effective_settings_are_the_compilers(
    broker: Broker, vhost: str, channel: BlockingChannel
) -> None:
    """MaxDeliveryCount, size and TTL are in force; a TTL that RabbitMQ cannot hold is not."""
    sized = {"max-length-bytes": 1_073_741_824}
    basic = {"message-ttl": 14 * 86_400_000}
    expected = {
        "keeps": {"delivery-limit": 1, "message-ttl": 1_000, **sized},
        "drops.a": {"delivery-limit": 1, "message-ttl": 1_000, **sized},
        "forever": {"delivery-limit": 9, **basic, **sized},
        "longest": {"delivery-limit": 9, **basic, **sized},
        "once": {"delivery-limit": 0, **basic, **sized},
        # Its topic's size is what limits it.
        "events/subscriptions/audit": {"delivery-limit": 9, **basic},
        "$sb/sink": {"max-length": 0},
    }
    dead = [f"{entity}/$deadletterqueue" for entity in expected if entity != "$sb/sink"]
    queues = [*ENTITIES, "events"]
    own = [*dead, "$sb/lapsed", *(f"{entity}/$inbox" for entity in queues)]
    expected |= {queue: {"delivery-limit": DELIVERY_LIMIT_MAX} for queue in own}
    streams = [f"{entity}/{kind}" for entity in queues for kind in ("$journal", "$moved")]
    expected |= {stream: {"max-length-bytes": JOURNAL_BYTES} for stream in streams}

    def shown() -> dict[str, object]:
        found = effective_settings(broker, vhost)
        return {queue: settings for queue, (_, _, settings) in found.items() if settings}

    eventually(lambda: shown() == expected)


def test_the_definitions_are_kept_as_they_are(
    broker: Broker, channel: BlockingChannel, topology: Topology
) -> None:
    """Global parameters give back every field of every entity."""
    kept = {row["name"]: row["value"] for row in broker.management("GET", "/api/global-parameters")}
    base, *entities = [kept[parameter.name] for parameter in topology.parameters]
    read = definitions.assemble(
        definitions.namespace_from_json(base), map(definitions.from_json, entities)
    )
    assert read.topics == NAMESPACE.topics
    assert set(read.queues) == set(NAMESPACE.queues)


@pytest.mark.parametrize(("queue", "kept"), [("keeps", ["expired"]), ("drops.a", [])])
def test_expired_messages_are_kept_or_dropped(
    broker: Broker, vhost: str, channel: BlockingChannel, queue: str, kept: list[str]
) -> None:
    """As DeadLetteringOnMessageExpiration says; and what is dropped is nowhere retained."""
    publish(channel, f"{queue}/$active")
    eventually(lambda: count(channel, queue) == 0)
    dead = f"{queue}/$deadletterqueue"
    eventually(lambda: count(channel, dead) == len(kept))

    def retained() -> list[int | None]:
        row = broker.management("GET", f"/api/queues/{vhost}/{queue}")
        return [row.get("messages"), row.get("messages_dlx")]

    eventually(lambda: retained() == [0, 0])
    assert reasons(channel, dead) == kept
    assert count(channel, "$sb/sink") == 0


@pytest.mark.parametrize("queue", ["keeps", "drops.a"])
def test_other_deaths_are_always_kept(channel: BlockingChannel, queue: str) -> None:
    """Rejection, the delivery limit and a reason of the future end in the dead-letter queue."""
    publish(channel, f"{queue}/$active")
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    dead = f"{queue}/$deadletterqueue"
    eventually(lambda: count(channel, dead) == 1)

    publish(channel, f"{queue}/$active")
    deliveries = 0
    while count(channel, dead) == 1:
        method, _, _ = channel.basic_get(queue)
        if method is not None:
            deliveries += 1
            channel.basic_reject(method.delivery_tag, requeue=True)
    assert deliveries == 2

    publish(channel, f"{queue}/$dlx", dead, headers={"x-first-death-reason": "boredom"})
    assert reasons(channel, dead) == ["rejected", "delivery_limit", "boredom"]


def test_what_expires_in_the_inbox_comes_back_to_the_sequencer(channel: BlockingChannel) -> None:
    """A native `expiration` must not end a message before it has a number."""
    publish(channel, "forever", expiration="50")
    eventually(lambda: count(channel, "$sb/lapsed") == 1)
    assert count(channel, "forever/$inbox") == 0


def test_a_subscription_is_reached_by_its_own_key(
    channel: BlockingChannel, topology: Topology
) -> None:
    """One publish with two keys: the journal's, and a matching subscription's as BCC."""
    audit = "events/subscriptions/audit"
    (key,) = {
        each.routing_key
        for each in topology.bindings
        if (each.source, each.destination) == ("events/$active", audit)
    }
    publish(channel, "events/$active", "events/$journal", headers={"BCC": [key]})
    assert count(channel, audit) == 1


def test_the_longest_time_to_live_is_the_longest_that_rabbitmq_takes(
    channel: BlockingChannel,
) -> None:
    """One millisecond more is refused as an argument (as a policy it would be taken, and break)."""
    assert channel.queue_declare(
        "most", durable=True, arguments={"x-message-ttl": TTL_MAX_MS}
    ).method.queue
    with pytest.raises(ChannelClosedByBroker, match="value_too_large"):
        channel.queue_declare("more", durable=True, arguments={"x-message-ttl": TTL_MAX_MS + 1})


def test_a_returned_message_keeps_its_place_without_a_policy(
    broker: Broker, vhost: str, channel: BlockingChannel
) -> None:
    """The argument's limit never ends a message, and sends it back to the head."""
    arguments = compiler.joined(
        bridged.queue_pieces(model.Queue(name="bare"), Capabilities.of(broker.version_text))
    )
    declare(channel, arguments)
    assert {DELIVERY_LIMIT_MAX} == {
        queue.arguments["x-delivery-limit"]
        for queue in arguments.queues
        if queue.arguments["x-queue-type"] == "quorum"
    }
    for key in ("first", "second"):
        channel.basic_publish("bare/$active", "", key.encode(), mandatory=True)
    for _ in range(25):
        method, _, body = channel.basic_get("bare")
        assert body == b"first"
        channel.basic_reject(method.delivery_tag, requeue=True)
