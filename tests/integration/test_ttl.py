"""What docs/policies.md says of RabbitMQ's TTLs: `message-ttl`, `expiration` and `expires`."""

from __future__ import annotations

import time
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

DEAD = "dead"
QUORUM = {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once"}
QUORUM |= {"x-overflow": "reject-publish"}
CLASSIC = {"x-queue-type": "classic"}
BOTH = pytest.mark.parametrize("kind", [QUORUM, CLASSIC], ids=["quorum", "classic"])

TICK_S = 5.0
"""RabbitMQ looks at a quorum queue's `expires` so often."""


@pytest.fixture
def channel(pika_connection: pika.BlockingConnection) -> BlockingChannel:
    """A channel with confirms and a queue for what has died."""
    channel = pika_connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(DEAD, durable=True, arguments=QUORUM)
    return channel


def declare(channel: BlockingChannel, queue: str, kind: dict[str, Any], **more: Any) -> None:
    """Declare a queue whose dead letters go to `DEAD`."""
    to = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    channel.queue_declare(queue, durable=True, arguments={**kind, **to, **more})


def publish(channel: BlockingChannel, queue: str, body: str, ttl_ms: int | None = None) -> None:
    """Publish one message; return when RabbitMQ has confirmed it."""
    expiration = None if ttl_ms is None else str(ttl_ms)
    properties = pika.BasicProperties(delivery_mode=2, expiration=expiration)
    channel.basic_publish("", queue, body.encode(), properties, mandatory=True)


def get(channel: BlockingChannel, queue: str) -> tuple[str, int]:
    """Get the first message, unacked: its body and tag; ("", 0) for none."""
    method, _, body = channel.basic_get(queue)
    return ("", 0) if method is None else (body.decode(), method.delivery_tag)


def next_dead(channel: BlockingChannel) -> tuple[str, str]:
    """Wait for the next dead letter: its body and RabbitMQ's reason."""
    found: list[tuple[str, str]] = []

    def came() -> bool:
        method, properties, body = channel.basic_get(DEAD, auto_ack=True)
        if method is not None:
            found.append((body.decode(), properties.headers["x-first-death-reason"]))
        return bool(found)

    eventually(came, "a dead letter")
    return found[0]


def set_policy(broker: Broker, vhost: str, **definition: int) -> None:
    """Set the one policy of the queues whose names begin with `q`."""
    body = {"pattern": "^q", "definition": definition, "apply-to": "queues"}
    broker.management("PUT", f"/api/policies/{vhost}/one", body)


def in_force(broker: Broker, vhost: str, queue: str, **definition: int) -> None:
    """Wait until the queue has the policy."""
    eventually(
        lambda: (
            broker.management("GET", f"/api/queues/{vhost}/{queue}").get(
                "effective_policy_definition"
            )
            == definition
        ),
        "the policy is in force",
    )


@BOTH
def test_a_ttl_that_comes_later_is_none_of_the_messages_that_are_there(
    broker: Broker, vhost: str, channel: BlockingChannel, kind: dict[str, Any]
) -> None:
    """RabbitMQ's page says that they are discarded at the head; they are not."""
    declare(channel, "q", kind)
    publish(channel, "q", "before")
    set_policy(broker, vhost, **{"message-ttl": 300})
    in_force(broker, vhost, "q", **{"message-ttl": 300})
    publish(channel, "q", "after")
    body, tag = get(channel, "q")
    assert body == "before"
    assert next_dead(channel) == ("after", "expired")
    channel.basic_reject(tag, requeue=True)
    publish(channel, "q", "marker", 0)
    body, tag = get(channel, "q")
    assert body == "before", "returned after more than its queue's TTL, it is still there"
    assert next_dead(channel) == ("marker", "expired")
    channel.basic_ack(tag)


@BOTH
def test_a_ttl_that_is_taken_away_still_holds_for_the_messages_that_came_under_it(
    broker: Broker, vhost: str, channel: BlockingChannel, kind: dict[str, Any]
) -> None:
    """A message has its TTL from its enqueueing."""
    set_policy(broker, vhost, **{"message-ttl": 3_000})
    declare(channel, "q", kind)
    in_force(broker, vhost, "q", **{"message-ttl": 3_000})
    publish(channel, "q", "under it")
    set_policy(broker, vhost, **{"max-length": 100})
    in_force(broker, vhost, "q", **{"max-length": 100})
    publish(channel, "q", "without")
    assert next_dead(channel) == ("under it", "expired")
    assert get(channel, "q")[0] == "without"


@BOTH
def test_what_expires_behind_a_live_head_stays_whatever_the_policy(
    broker: Broker, vhost: str, channel: BlockingChannel, kind: dict[str, Any]
) -> None:
    """A change of policy removes it from neither kind of queue."""
    declare(channel, "q", kind)
    declare(channel, "other", kind)
    publish(channel, "q", "head")
    publish(channel, "q", "behind", 100)
    publish(channel, "other", "expired", 500)
    assert next_dead(channel) == ("expired", "expired")
    set_policy(broker, vhost, **{"message-ttl": 600_000})
    in_force(broker, vhost, "q", **{"message-ttl": 600_000})
    publish(channel, "other", "later", 0)
    assert next_dead(channel) == ("later", "expired")
    assert channel.queue_declare("q", passive=True).method.message_count == 2
    assert get(channel, "q")[0] == "head"
    assert next_dead(channel) == ("behind", "expired")


@BOTH
def test_a_message_that_is_returned_keeps_its_first_expiry(
    channel: BlockingChannel, kind: dict[str, Any]
) -> None:
    """Returned after four of its five seconds, it has one left."""
    declare(channel, "q", kind)
    declare(channel, "other", kind)
    began_s = time.monotonic()
    publish(channel, "q", "held", 5_000)
    publish(channel, "other", "four seconds", 4_000)
    _, tag = get(channel, "q")
    assert next_dead(channel) == ("four seconds", "expired")
    channel.basic_reject(tag, requeue=True)
    assert next_dead(channel) == ("held", "expired")
    assert 5 <= time.monotonic() - began_s < 8


@BOTH
def test_a_ttl_of_zero_delivers_to_who_waits_and_to_nobody_else(
    broker: Broker, vhost: str, channel: BlockingChannel, kind: dict[str, Any]
) -> None:
    """As the TTL of a queue, and as a message's own."""
    set_policy(broker, vhost, **{"message-ttl": 0})
    declare(channel, "q", kind)
    declare(channel, "own", kind)
    in_force(broker, vhost, "q", **{"message-ttl": 0})
    came: list[str] = []

    def has_come() -> bool:
        channel.connection.process_data_events(0)
        return bool(came)

    for queue, ttl_ms in (("q", None), ("own", 0)):
        publish(channel, queue, "nobody waits", ttl_ms)
        assert next_dead(channel) == ("nobody waits", "expired")
        tag = channel.basic_consume(queue, lambda *each: came.append(queue), auto_ack=True)  # noqa: B023
        publish(channel, queue, "somebody waits", ttl_ms)
        eventually(has_come, "it is delivered")
        channel.basic_cancel(tag)
        assert came == [queue]
        came.clear()
    assert channel.queue_declare(DEAD, passive=True).method.message_count == 0


@BOTH
def test_expires_counts_from_the_last_use_and_who_publishes_uses_nothing(
    broker: Broker, vhost: str, channel: BlockingChannel, kind: dict[str, Any]
) -> None:
    """Its messages go with the queue, not to the dead-letter queue."""
    began_s = time.monotonic()
    declare(channel, "q", kind, **{"x-expires": 2_000})
    gone_s: list[float] = []

    def is_gone() -> bool:
        try:
            publish(channel, "q", "unused")
        except pika.exceptions.NackError:
            return False  # it is being deleted
        except pika.exceptions.UnroutableError:
            gone_s.append(time.monotonic() - began_s)
        return bool(gone_s)

    eventually(is_gone, "the queue is deleted")
    assert gone_s[0] >= 2.0
    assert channel.queue_declare(DEAD, passive=True).method.message_count == 0


def test_a_declaration_renews_expires_of_a_classic_queue(
    broker: Broker, vhost: str, channel: BlockingChannel
) -> None:
    """Declared again and again, it outlives one that has three times its time."""
    arguments = {**CLASSIC, "x-expires": 4_000}
    channel.queue_declare("q", durable=True, arguments=arguments)
    channel.queue_declare("longer", durable=True, arguments={**CLASSIC, "x-expires": 12_000})
    publish(channel, "q", "mark")

    def is_longer_gone() -> bool:
        found = channel.queue_declare("q", durable=True, arguments=arguments)
        assert found.method.message_count == 1, "it is the queue of before"
        queues = broker.management("GET", f"/api/queues/{vhost}")
        return "longer" not in {each["name"] for each in queues}

    eventually(is_longer_gone, "the longer queue is deleted")


def test_a_declaration_does_not_renew_expires_of_a_quorum_queue(channel: BlockingChannel) -> None:
    """It goes at its time, a tick of RabbitMQ's later at most."""
    arguments = {**QUORUM, "x-expires": 4_000}
    began_s = time.monotonic()
    channel.queue_declare("q", durable=True, arguments=arguments)
    publish(channel, "q", "mark")

    def is_new() -> bool:
        found = channel.queue_declare("q", durable=True, arguments=arguments)
        return bool(found.method.message_count == 0)

    eventually(is_new, "the queue of before was deleted")
    assert 4 <= time.monotonic() - began_s < 4 + TICK_S + 3


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-expires", 0),
        ("x-expires", -1),
        ("x-message-ttl", -1),
        ("x-message-ttl", 315_360_000_001),
    ],
)
@BOTH
def test_values_that_are_no_ttl_are_refused_as_arguments(
    pika_connection: pika.BlockingConnection, kind: dict[str, Any], argument: str, value: int
) -> None:
    """`expires` is positive, `message-ttl` is not negative; ten years are the most."""
    channel = pika_connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=argument):
        channel.queue_declare("q", durable=True, arguments={**kind, argument: value})


@pytest.mark.parametrize("argument", ["x-expires", "x-message-ttl"])
def test_a_stream_takes_no_ttl(pika_connection: pika.BlockingConnection, argument: str) -> None:
    """Neither for its messages nor for itself."""
    channel = pika_connection.channel()
    arguments = {"x-queue-type": "stream", argument: 60_000}
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=argument):
        channel.queue_declare("q", durable=True, arguments=arguments)


def test_a_stream_outlives_a_policy_of_expires(
    broker: Broker, vhost: str, channel: BlockingChannel
) -> None:
    """A policy for all queues may match it."""
    channel.queue_declare("q-stream", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare("q-quorum", durable=True, arguments=QUORUM)
    channel.queue_declare("q-classic", durable=True, arguments=CLASSIC)
    set_policy(broker, vhost, expires=1_000)

    def left() -> set[str]:
        return {each["name"] for each in broker.management("GET", f"/api/queues/{vhost}")}

    eventually(lambda: left() == {DEAD, "q-stream"}, "the other queues are deleted")


def test_values_that_are_no_ttl_are_refused_or_taken_in_policies(
    broker: Broker, vhost: str
) -> None:
    """RabbitMQ looks for a sign, and for no upper bound."""
    for refused in ({"expires": 0}, {"expires": -1}, {"message-ttl": -1}):
        with pytest.raises(Exception, match="400"):
            set_policy(broker, vhost, **refused)
    for taken in ({"message-ttl": 0}, {"expires": 1}, {"message-ttl": 315_360_000_001}):
        set_policy(broker, vhost, **taken)
