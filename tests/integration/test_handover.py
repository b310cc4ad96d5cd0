"""The hand-over on a real RabbitMQ: nothing is acked before its successor is confirmed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.broker.connection.publisher import CREDIT
from bridge.broker.errors import (
    AckLost,
    BrokerError,
    ChannelClosed,
    ConnectionLost,
    PublishRefused,
    Unroutable,
)
from bridge.broker.failpoint import VARIABLE
from bridge.broker.handover import HandOver, Publish
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.dead import dead_queue
from tests.integration.inbox import QUORUM, Inbox

PLAIN = Properties(delivery_mode=2).encode()
SITE = "test.hop"
QUEUE_IS_DURABLE_S = 3.0
"""RabbitMQ registers a quorum queue on disk some time after queue.declare-ok: one that
was declared 0.7 s before a kill comes back without its messages, one of 3 s with them. Nothing
tells when it has happened."""

ROOT = Path(__file__).parents[2]


async def filled(channel: Channel, *bodies: bytes) -> Inbox:
    """Declare `in` and `out`, put messages into `in` and take them unacked."""
    await channel.declarations.declare_queue("in", arguments={**QUORUM, "x-delivery-limit": 1_000})
    await channel.declarations.declare_queue("out", arguments=QUORUM)
    for body in bodies:
        await channel.publisher.publish_confirmed("", "in", PLAIN, body)
    inbox = Inbox()
    await channel.consumers.consume("in", inbox)
    await inbox.until(len(bodies))
    return inbox


async def contents(connection: Connection, queue: str, count: int) -> list[bytes]:
    """Take so many messages out of a queue, and what else is ready there."""
    channel = await connection.channel()
    await channel.consumers.qos(count + 1)
    inbox = Inbox()
    tag = await channel.consumers.consume(queue, inbox)
    await inbox.until(count)
    await channel.consumers.cancel(tag)
    left = await channel.consumers.get(queue)
    return inbox.bodies + ([] if left is None else [left.body])


def to(queue: str, body: bytes) -> Publish:
    """Return a publish to a queue."""
    return Publish("", queue, PLAIN, body)


async def test_what_is_handed_over_is_in_the_target_only(
    connection: Connection, confirming: Channel
) -> None:
    """After the hand-over the source is empty and the target has the messages in order."""
    bodies = [b"%d" % number for number in range(500)]
    inbox = await filled(confirming, *bodies)
    handover = HandOver(confirming)
    await asyncio.gather(
        *(
            handover.move([to("out", each.body)], acks=[(confirming, each.tag)], failpoint=SITE)
            for each in inbox.deliveries
        )
    )
    assert handover.in_flight == 0
    await confirming.close()

    assert await contents(connection, "in", 0) == []
    assert await contents(connection, "out", len(bodies)) == bodies


async def test_all_publishes_come_before_the_ack(
    connection: Connection, confirming: Channel
) -> None:
    """One message becomes three, and two messages become one: all or no acks."""
    inbox = await filled(confirming, b"a", b"b", b"c")
    tags = [each.tag for each in inbox.deliveries]
    handover = HandOver(confirming)
    await handover.move(
        [to("out", b"%d" % number) for number in range(3)],
        acks=[(confirming, tags[0])],
        failpoint=SITE,
    )
    await handover.move(
        [to("out", b"bc")], acks=[(confirming, tag) for tag in tags[1:]], failpoint=SITE
    )
    await confirming.close()

    assert await contents(connection, "in", 0) == []
    assert await contents(connection, "out", 4) == [b"0", b"1", b"2", b"bc"]


async def test_a_large_hand_over_never_exceeds_its_channel_s_room(
    connection: Connection, confirming: Channel
) -> None:
    """It is written bit by bit; what is submitted meanwhile comes behind it, and is known of."""
    inbox = await filled(confirming, b"a", b"b")
    await confirming.declarations.declare_queue("behind", arguments=QUORUM)
    acks = [[(confirming, each.tag)] for each in inbox.deliveries]
    bodies = [b"%d" % number for number in range(8 * CREDIT + 1)]
    handover = HandOver(confirming)
    large = handover.move([to("out", body) for body in bodies], acks=acks[0], failpoint=SITE)
    small = handover.move([to("out", b"last"), to("behind", b"x")], acks=acks[1], failpoint=SITE)
    moving = asyncio.gather(large, small)
    await asyncio.sleep(0)
    assert confirming.publisher.unconfirmed < 2 * CREDIT
    assert handover.in_flight == len(bodies) + 2
    assert handover.leads_to("behind")
    assert not handover.leads_to("in")
    await moving
    assert not handover.leads_to("behind")
    await confirming.close()

    assert await contents(connection, "in", 0) == []
    assert await contents(connection, "out", len(bodies) + 1) == [*bodies, b"last"]


async def test_a_large_hand_over_fails_as_a_whole(
    connection: Connection, confirming: Channel
) -> None:
    """When the channel is lost in the middle, each of its publishes is told, once."""
    inbox = await filled(confirming, b"a")
    second = await connection.channel()
    await second.publisher.confirm_select()
    handover = HandOver(second)
    publishes = [to("out", b"x")] * (8 * CREDIT)
    acks = [(confirming, inbox.deliveries[0].tag)]
    moving = asyncio.gather(
        handover.move(publishes, acks=acks, failpoint=SITE),
        handover.move([to("out", b"y")], failpoint=SITE),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    await second.close()
    assert all(isinstance(error, BrokerError) for error in await moving)
    assert handover.in_flight == 0
    await confirming.close()

    assert await contents(connection, "in", 1) == [b"a"]


@pytest.mark.kills
@pytest.mark.parametrize("before", [1, 100, 166, 199, 300])
async def test_a_hand_over_to_a_dead_queue_leaves_its_connection_readable(
    own_broker: Broker, before: int
) -> None:
    """This holds for any number of publishes: RabbitMQ's credit ends at 400, 600, and so on."""
    with own_broker.fresh_vhost() as vhost:
        connection = await Connection.open(parse_url(own_broker.url_of(vhost)), name="test")
        channel, other = await connection.channel(), await connection.channel()
        for queue in ("dead", "other"):
            await channel.declarations.declare_queue(queue, arguments=QUORUM)
        await channel.publisher.confirm_select()
        await other.publisher.confirm_select()
        for _ in range(before):
            await channel.publisher.publish_confirmed("", "dead", PLAIN, b"before")
        handover = HandOver(channel)
        async with dead_queue(own_broker, vhost, "dead"):
            moving = asyncio.create_task(handover.move([to("dead", b"x")] * 1_000, failpoint=SITE))
            await asyncio.sleep(0)
            async with asyncio.timeout(120):
                await other.publisher.publish_confirmed("", "other", PLAIN, b"y")
            assert not moving.done()
        await moving
        await connection.close()


@pytest.mark.parametrize(("bad", "kind"), [("missing", Unroutable), ("full", PublishRefused)])
async def test_nothing_is_acked_when_one_publish_fails(
    connection: Connection, confirming: Channel, bad: str, kind: type[BrokerError]
) -> None:
    """A returned or refused publish among confirmed ones leaves the source as it was."""
    full = {"x-max-length": 0, "x-overflow": "reject-publish"}
    await confirming.declarations.declare_queue("full", arguments=full)
    inbox = await filled(confirming, b"a")
    handover = HandOver(confirming)
    with pytest.raises(kind):
        await handover.move(
            [to("out", b"1"), to(bad, b"2"), to("out", b"3")],
            acks=[(confirming, inbox.deliveries[0].tag)],
            failpoint=SITE,
        )

    assert handover.in_flight == 0
    assert confirming.consumers.outstanding == 1
    await confirming.close()
    assert await contents(connection, "in", 1) == [b"a"]


async def test_acks_may_be_another_connections(
    endpoint: Endpoint, connection: Connection, confirming: Channel
) -> None:
    """Publishing and consuming on two connections is one hand-over all the same."""
    other = await Connection.open(endpoint, name="consumer")
    consuming = await other.channel()
    await consuming.publisher.confirm_select()
    inbox = await filled(consuming, b"a")
    await HandOver(confirming).move(
        [to("out", b"a")], acks=[(consuming, inbox.deliveries[0].tag)], failpoint=SITE
    )
    await other.close()

    assert await contents(connection, "in", 0) == []
    assert await contents(connection, "out", 1) == [b"a"]


async def test_an_ack_that_cannot_be_sent_is_told(
    connection: Connection, confirming: Channel
) -> None:
    """The message is in both places then, and the caller hears so."""
    inbox = await filled(confirming, b"a")
    await confirming.close()
    publishing = await connection.channel()
    await publishing.publisher.confirm_select()
    with pytest.raises(AckLost, match="confirmed, but not acked"):
        await HandOver(publishing).move(
            [to("out", b"a")], acks=[(confirming, inbox.deliveries[0].tag)], failpoint=SITE
        )

    assert await contents(connection, "in", 1) == [b"a"]
    assert await contents(connection, "out", 1) == [b"a"]


async def test_a_hand_over_without_publishes_acks(
    connection: Connection, confirming: Channel
) -> None:
    """A message that needs no successor is acked at once."""
    inbox = await filled(confirming, b"a")
    await HandOver(confirming).move(
        [], acks=[(confirming, inbox.deliveries[0].tag)], failpoint=SITE
    )
    await confirming.close()

    assert await contents(connection, "in", 0) == []


async def test_a_closed_channel_refuses_at_once(confirming: Channel) -> None:
    """Nothing was published, and `done` hears it exactly once."""
    await confirming.close()
    outcomes: list[BrokerError | None] = []
    handover = HandOver(confirming)
    handover.submit([to("out", b"1"), to("out", b"2")], done=outcomes.append, failpoint=SITE)

    assert [type(each) for each in outcomes] == [ChannelClosed]
    assert handover.in_flight == 0


async def test_a_lost_connection_ends_every_hand_over(
    connection: Connection, confirming: Channel
) -> None:
    """Each `done` is called once, with ConnectionLost, and nothing stays in flight."""
    inbox = await filled(confirming, *(b"%d" % number for number in range(50)))
    handover = HandOver(confirming)
    outcomes: list[BrokerError | None] = []
    for each in inbox.deliveries:
        handover.submit(
            [to("out", each.body)] * 2,
            acks=[(confirming, each.tag)],
            done=outcomes.append,
            failpoint=SITE,
        )
    # In this turn of the loop: whatever RabbitMQ is told first it may confirm in time.
    connection._transport.lose(ConnectionLost(text="cut"))

    assert [type(each) for each in outcomes] == [ConnectionLost] * 50
    assert handover.in_flight == 0


@pytest.mark.long
async def test_a_broker_that_is_killed_loses_nothing(
    start_broker: Callable[[], Broker],
) -> None:
    """Messages that hop while RabbitMQ is killed are in `in` or in `out` afterwards, or in both."""
    broker = await asyncio.to_thread(start_broker)
    node = broker.node
    assert node is not None
    endpoint = parse_url(broker.url)
    connection = await Connection.open(endpoint, name="test")
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.declarations.declare_queue("in", arguments={**QUORUM, "x-delivery-limit": 1_000})
    await channel.declarations.declare_queue("out", arguments=QUORUM)
    await asyncio.sleep(QUEUE_IS_DURABLE_S)
    accepted = [b"%d" % number for number in range(4_000)]
    await asyncio.gather(
        *(channel.publisher.publish_confirmed("", "in", PLAIN, body) for body in accepted)
    )
    handover = HandOver(channel)
    enough = asyncio.Event()
    ends = {"done": 0, "failed": 0}

    def done(error: BrokerError | None) -> None:
        ends["failed" if error else "done"] += 1
        if ends["done"] == 1_000:
            enough.set()

    def hop(delivery: Delivery) -> None:
        acks = [(channel, delivery.tag)]
        handover.submit([to("out", delivery.body)], acks=acks, done=done, failpoint=SITE)

    await channel.consumers.qos(200)
    await channel.consumers.consume("in", hop)
    await asyncio.wait_for(enough.wait(), 120)
    await asyncio.to_thread(node.kill)
    await asyncio.wait_for(connection.closed.wait(), 120)
    assert handover.in_flight == 0
    await asyncio.to_thread(node.start)
    connection = await Connection.open(endpoint, name="test")
    channel = await connection.channel()
    seen: set[bytes] = set()
    everything = asyncio.Event()

    def find(delivery: Delivery) -> None:
        seen.add(delivery.body)
        channel.consumers.ack(delivery.tag)
        if len(seen) == len(accepted):
            everything.set()

    await channel.consumers.consume("in", find)
    await channel.consumers.consume("out", find)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(everything.wait(), 120)
    await connection.close()

    assert seen == set(accepted)


HOP = f"""
import asyncio, sys
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.broker.handover import HandOver, Publish

async def main():
    connection = await Connection.open(parse_url(sys.argv[1]), name="hop")
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    handover = HandOver(channel)
    for _ in range(3):
        got = await channel.consumers.get("in")
        publish = Publish("", "out", got.properties, got.body)
        await handover.move([publish], acks=[(channel, got.tag)], failpoint={SITE!r})
    await connection.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("point", "left", "moved", "unsure"),
    [
        ("published", [b"a", b"b", b"c"], [], [b"a"]),
        ("published:2", [b"b", b"c"], [b"a"], [b"b"]),
        ("confirmed", [b"a", b"b", b"c"], [b"a"], []),
        ("confirmed:3", [b"c"], [b"a", b"b", b"c"], []),
        ("acked", [b"b", b"c"], [b"a"], []),
        ("acked:2", [b"c"], [b"a", b"b"], []),
    ],
)
async def test_a_process_dies_at_each_point(
    broker: Broker, vhost: str, connection: Connection, confirming: Channel, point: str,
    left: list[bytes], moved: list[bytes], unsure: list[bytes],
) -> None:  # fmt: skip
    """Killed at a point, the message is where that point says; none is in neither queue.

    What was not confirmed RabbitMQ may have read from the dying connection, or not; so with an ack,
    which nothing confirms.
    """
    await confirming.declarations.declare_queue(
        "in", arguments={**QUORUM, "x-delivery-limit": 1_000}
    )
    await confirming.declarations.declare_queue("out", arguments=QUORUM)
    for body in (b"a", b"b", b"c"):
        await confirming.publisher.publish_confirmed("", "in", PLAIN, body)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOP,
        broker.url_of(vhost),
        cwd=ROOT,
        env=os.environ | {VARIABLE: f"{SITE}.{point}"},
    )
    code = await asyncio.wait_for(process.wait(), 120)
    inbox = Inbox()
    await confirming.consumers.consume("in", inbox)
    await inbox.until(len(left))
    await confirming.close()

    assert code == -signal.SIGKILL
    undone = moved[-1:] if point.startswith("acked") else []
    assert sorted(inbox.bodies) in (left, undone + left)
    assert await contents(connection, "out", len(moved)) in (moved, moved + unsure)
