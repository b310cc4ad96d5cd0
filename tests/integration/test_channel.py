"""Channels on a real RabbitMQ: publish, consume, settle, declare, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pika
import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.broker.errors import (
    BrokerError,
    BrokerSilent,
    ChannelClosed,
    HeaderTooLarge,
    NotFound,
    PreconditionFailed,
    PublishRefused,
    ResourceLocked,
    Unroutable,
)
from bridge.topology.resources import Binding, Exchange, Queue
from bridge.wire.basic import Properties, long, text
from tests.fixtures.broker import Broker
from tests.fixtures.relay import Relay
from tests.fixtures.waiting import until
from tests.integration.inbox import QUORUM, WITHIN_S, Inbox

PLAIN = Properties(delivery_mode=2).encode()


async def send(channel: Channel, queue: str, *bodies: bytes) -> None:
    """Publish to a queue, confirmed."""
    await asyncio.gather(
        *(channel.publisher.publish_confirmed("", queue, PLAIN, body) for body in bodies)
    )


async def test_a_message_arrives_as_it_was_sent(confirming: Channel) -> None:
    """Body, encoded properties, exchange and key are what was published, byte for byte."""
    properties = Properties(
        message_id="m", headers={"n": long(5), "s": text("ä"), "x": ("x", b"\0")}, delivery_mode=2
    ).encode()
    inbox = Inbox()
    await confirming.declarations.declare_exchange("x", "topic")
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    await confirming.declarations.bind_queue("q", "x", "a.*")
    await confirming.consumers.consume("q", inbox)
    await confirming.publisher.publish_confirmed("x", "a.b", properties, b"body")
    (delivery,) = await inbox.until(1)

    assert (delivery.exchange, delivery.routing_key, delivery.body, delivery.redelivered) == (
        "x",
        "a.b",
        b"body",
        False,
    )
    assert delivery.properties == properties


@pytest.mark.parametrize("size", [0, 1, 131_063, 131_064, 131_065, 1 << 20, 16 << 20])
async def test_bodies_of_any_size_arrive(confirming: Channel, size: int) -> None:
    """Around the frame limit, and up to the largest message of RabbitMQ 4."""
    body = random.Random(size).randbytes(size)
    inbox = Inbox()
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    await confirming.consumers.consume("q", inbox)
    await confirming.publisher.publish_confirmed("", "q", PLAIN, body)
    (delivery,) = await inbox.until(1)

    assert delivery.body == body


async def test_thousands_arrive_in_order(confirming: Channel) -> None:
    """Publishes, deliveries and acks that are pipelined keep their order and none is missing."""
    count = 5_000
    inbox = Inbox()
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    await confirming.consumers.qos(300)

    def take(delivery: object) -> None:
        inbox(delivery)  # type: ignore[arg-type]
        confirming.consumers.ack(inbox.deliveries[-1].tag)

    await confirming.consumers.consume("q", take)
    await send(confirming, "q", *(b"%d" % number for number in range(count)))
    await inbox.until(count)
    await confirming.barrier()

    assert inbox.bodies == [b"%d" % number for number in range(count)]
    assert confirming.consumers.outstanding == 0
    assert (await confirming.declarations.declare_queue("q", passive=True)).messages == 0


@pytest.mark.parametrize("seed", range(6))
async def test_acks_settle_exactly_what_was_acked(connection: Connection, seed: int) -> None:
    """In whatever order tags are acked, and however acks share a frame, the rest comes back."""
    chance = random.Random(seed)
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.declarations.declare_queue("q", arguments=QUORUM)
    inbox = Inbox()
    await channel.consumers.consume("q", inbox)
    await send(channel, "q", *(b"%d" % number for number in range(200)))
    deliveries = list(await inbox.until(200))
    chance.shuffle(deliveries)
    acked, kept = deliveries[:120], deliveries[120:]
    rejected = kept[:10]
    for delivery in acked:
        channel.consumers.ack(delivery.tag)
        if chance.random() < 0.1:
            await asyncio.sleep(0)
        if rejected and chance.random() < 0.1:
            channel.consumers.reject(rejected.pop().tag, requeue=False)
    dropped = {each.body for each in kept[:10]} - {each.body for each in rejected}
    assert channel.consumers.outstanding == 80 - len(dropped)
    await channel.close()
    again = Inbox()
    other = await connection.channel()
    await other.consumers.consume("q", again)
    expected = {each.body for each in kept} - dropped
    await again.until(len(expected))
    await other.barrier()

    assert set(again.bodies) == expected
    assert len(again.bodies) == len(expected)


async def test_acks_are_written_before_what_follows_them(connection: Connection) -> None:
    """An ack of this turn is not lost to a close, a cancel or a question of the same turn."""
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.declarations.declare_queue("q", arguments=QUORUM)
    inbox = Inbox()
    await channel.consumers.consume("q", inbox)
    await send(channel, "q", b"1", b"2", b"3")
    for delivery in await inbox.until(3):
        channel.consumers.ack(delivery.tag)
    await channel.close()
    other = await connection.channel()

    async def is_empty() -> bool:
        return (await other.declarations.declare_queue("q", passive=True)).messages == 0

    await until(is_empty)
    assert await other.consumers.get("q") is None


async def test_what_is_not_outstanding_cannot_be_settled(confirming: Channel) -> None:
    """A second settlement is refused here, before RabbitMQ would close the channel."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    await send(confirming, "q", b"1")
    delivery = await confirming.consumers.get("q")
    assert delivery is not None
    confirming.consumers.ack(delivery.tag)
    for settle in (confirming.consumers.ack, lambda tag: confirming.consumers.reject(tag, True)):
        with pytest.raises(ValueError, match="not outstanding"):
            settle(delivery.tag)
    await confirming.barrier()

    assert confirming.close_reason is None


async def test_prefetch_limits_what_is_outstanding(confirming: Channel) -> None:
    """No more than the prefetch is delivered until something is settled."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    await send(confirming, "q", *(b"%d" % number for number in range(10)))
    await confirming.consumers.qos(3)
    inbox = Inbox()
    await confirming.consumers.consume("q", inbox)
    await inbox.until(3)
    await confirming.barrier()
    assert len(inbox.deliveries) == 3
    confirming.consumers.ack(inbox.deliveries[0].tag)
    await inbox.until(4)
    await confirming.barrier()

    assert len(inbox.deliveries) == 4


async def test_nothing_comes_after_a_cancel(confirming: Channel) -> None:
    """When cancel returns, later messages stay in the queue, and what came can be settled."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    inbox = Inbox()
    tag = await confirming.consumers.consume("q", inbox)
    await send(confirming, "q", b"1")
    (delivery,) = await inbox.until(1)
    await confirming.consumers.cancel(tag)
    await send(confirming, "q", b"2")
    confirming.consumers.ack(delivery.tag)
    await confirming.barrier()
    left = await confirming.consumers.get("q")

    assert left is not None
    assert left.body == b"2"
    assert len(inbox.deliveries) == 1


async def test_gets_are_pipelined(confirming: Channel) -> None:
    """Ten gets at once take what is there, in order, and None for the rest."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    await send(confirming, "q", *(b"%d" % number for number in range(7)))
    answers = await asyncio.gather(*(confirming.consumers.get("q") for _ in range(10)))

    assert [each and each.body for each in answers] == [
        *(b"%d" % number for number in range(7)),
        None,
        None,
        None,
    ]


async def test_a_consumer_that_nobody_waits_for_any_more_ends(
    confirming: Channel, connection: Connection
) -> None:
    """Given up before RabbitMQ has answered, it is cancelled, and its channel lives on."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    channel = await connection.channel()
    await _give_up_a_consume(channel)
    await channel.barrier()

    async def is_gone() -> bool:
        return (await channel.declarations.declare_queue("q", passive=True)).consumers == 0

    await until(is_gone)


async def test_a_channel_closes_while_a_consumer_begins(
    confirming: Channel, connection: Connection
) -> None:
    """RabbitMQ answers the close, and the other channels live on."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    channel = await connection.channel()
    await _give_up_a_consume(channel)

    await channel.close()

    await confirming.barrier()


async def _give_up_a_consume(channel: Channel) -> None:
    """Ask for a consumer and be cancelled before RabbitMQ can have answered."""
    consuming = asyncio.create_task(channel.consumers.consume("q", Inbox()))
    await asyncio.sleep(0)
    consuming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consuming


async def test_a_message_for_a_cancelled_get_goes_back(confirming: Channel) -> None:
    """The message of a get whose future was cancelled returns to its queue."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    await send(confirming, "q", b"1")
    confirming.consumers.get("q").cancel()
    await confirming.barrier()
    again = None
    async with asyncio.timeout(WITHIN_S):
        while again is None:
            again = await confirming.consumers.get("q")

    assert again.body == b"1"
    assert confirming.consumers.outstanding == 1


async def test_direct_reply_to(connection: Connection) -> None:
    """A request is answered past all queues; its consumer is one without acks."""
    client, server = await connection.channel(), await connection.channel()
    answers, requests = Inbox(), Inbox()
    await server.declarations.declare_queue("requests", arguments=QUORUM)
    await server.consumers.consume("requests", requests)
    await client.consumers.consume("amq.rabbitmq.reply-to", answers, no_ack=True)
    reply_to = Properties(reply_to="amq.rabbitmq.reply-to", correlation_id="7")
    client.publisher.publish("", "requests", reply_to.encode(), b"question")
    (request,) = await requests.until(1)
    asked = Properties.decode(request.properties)
    answer = Properties(correlation_id=asked.correlation_id).encode()
    server.publisher.publish("", asked.reply_to or "", answer, b"answer")
    (reply,) = await answers.until(1)

    assert (reply.body, Properties.decode(reply.properties).correlation_id) == (b"answer", "7")
    assert client.consumers.outstanding == 0


async def test_a_full_queue_refuses(confirming: Channel) -> None:
    """basic.nack becomes PublishRefused, which may be retried."""
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await confirming.declarations.declare_queue("q", arguments=arguments)
    await send(confirming, "q", b"1")
    with pytest.raises(PublishRefused) as refused:
        await send(confirming, "q", b"2", b"3")

    assert refused.value.is_retryable


async def test_an_unroutable_message_is_an_error(confirming: Channel) -> None:
    """RabbitMQ confirms it and returns it; here it failed. Routable ones beside it did not."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    outcomes = await asyncio.gather(
        *(
            confirming.publisher.publish_confirmed("", queue, PLAIN, b"%d" % number)
            for number, queue in enumerate(["q", "nowhere", "q", "nowhere", "nowhere", "q"])
        ),
        return_exceptions=True,
    )

    kinds = [None if each is None else type(each) for each in outcomes]
    assert kinds == [None, Unroutable, None, Unroutable, Unroutable, None]
    assert "nowhere" in str(outcomes[1])
    assert (await confirming.declarations.declare_queue("q", passive=True)).messages == 3


async def test_mixed_targets_are_told_apart(confirming: Channel) -> None:
    """Confirms of quorum, classic, stream and missing queues, mixed, reach their own publishes."""
    await confirming.declarations.declare_queue("quorum", arguments=QUORUM)
    await confirming.declarations.declare_queue("classic")
    await confirming.declarations.declare_queue("stream", arguments={"x-queue-type": "stream"})
    full = {"x-max-length": 0, "x-overflow": "reject-publish"}
    await confirming.declarations.declare_queue("full", arguments=full)
    expected = {
        "quorum": None,
        "classic": None,
        "stream": None,
        "full": PublishRefused,
        "missing": Unroutable,
    }
    chance = random.Random(11)
    targets = [chance.choice(list(expected)) for _ in range(2_000)]
    outcomes = await asyncio.gather(
        *(confirming.publisher.publish_confirmed("", target, PLAIN, b"same") for target in targets),
        return_exceptions=True,
    )

    wrong = [
        (target, outcome)
        for target, outcome in zip(targets, outcomes, strict=True)
        if (None if outcome is None else type(outcome)) is not expected[target]
    ]
    assert wrong == []


async def test_a_message_may_be_too_large_for_rabbitmq(
    confirming: Channel, connection: Connection
) -> None:
    """The channel is closed with RabbitMQ's reason; the connection goes on."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    with pytest.raises(PreconditionFailed, match="larger than configured max size"):
        await confirming.publisher.publish_confirmed("", "q", PLAIN, bytes((128 << 20) + 1))

    assert not connection.is_closed
    await connection.channel()


async def test_properties_that_no_frame_holds_cost_nobody_else_anything(
    confirming: Channel, connection: Connection
) -> None:
    """RabbitMQ would end the connection: they are not written. The largest that fit are taken."""
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    inbox = Inbox()
    await confirming.consumers.consume("q", inbox)
    frame = 131_072 - 8 - 12  # what RabbitMQ offers, without what is around it
    spare = frame - len(Properties(headers={"s": text("")}, delivery_mode=2).encode())
    fitting, excessive = (
        Properties(headers={"s": text("x" * size)}, delivery_mode=2).encode()
        for size in (spare, spare + 1)
    )
    with pytest.raises(HeaderTooLarge, match="to 'q' have 131,053 bytes"):
        confirming.publisher.publish("", "q", excessive, b"")
    await confirming.publisher.publish_confirmed("", "q", fitting, b"fits")

    (delivery,) = await inbox.until(1)
    assert (delivery.body, len(delivery.properties)) == (b"fits", frame)


async def test_resources_are_declared_from_values(
    confirming: Channel, pika_connection: pika.BlockingConnection
) -> None:
    """Exchanges, queues and bindings of the compiler's are there for another client."""
    await confirming.declarations.declare_exchange(Exchange(name="front", type="fanout"))
    await confirming.declarations.declare_exchange(Exchange(name="back", type="headers"))
    await confirming.declarations.declare_queue(
        Queue(name="q", arguments={**QUORUM, "x-delivery-limit": 5})
    )
    await confirming.declarations.bind(
        Binding(source="front", destination="back", to_exchange=True)
    )
    arguments = {"x-match": "all", "kind": "wanted"}
    await confirming.declarations.bind(Binding(source="back", destination="q", arguments=arguments))
    witness = pika_connection.channel()
    for kind in ("wanted", "other"):
        properties = pika.BasicProperties(headers={"kind": kind})
        witness.basic_publish("front", "", kind.encode(), properties)
    _, _, body = next(witness.consume("q", inactivity_timeout=WITHIN_S))
    witness.cancel()

    assert body == b"wanted"
    await confirming.declarations.unbind_queue("q", "back", arguments=arguments)
    with pytest.raises(Unroutable):
        await confirming.publisher.publish_confirmed("back", "", PLAIN, b"")
    await confirming.declarations.delete_queue("q")
    await confirming.declarations.delete_exchange("front")


async def test_rabbitmq_names_a_queue(confirming: Channel) -> None:
    """An exclusive queue without a name gets one."""
    state = await confirming.declarations.declare_queue(exclusive=True)

    assert state.name.startswith("amq.gen")


async def test_errors_carry_rabbitmqs_code(connection: Connection) -> None:
    """Each code has its class; the channel is closed and the connection is not."""
    channel = await connection.channel()
    await channel.declarations.declare_queue("q", arguments=QUORUM)
    with pytest.raises(PreconditionFailed, match="406 PRECONDITION_FAILED - inequivalent arg"):
        await channel.declarations.declare_queue("q")
    assert channel.closed.is_set()
    with pytest.raises(PreconditionFailed):
        channel.publisher.publish("", "q", PLAIN, b"")
    channel = await connection.channel()
    with pytest.raises(NotFound, match="no queue 'missing'"):
        await channel.consumers.consume("missing", lambda delivery: None)
    channel = await connection.channel()
    await channel.declarations.declare_queue(
        "sac", arguments={**QUORUM, "x-single-active-consumer": True}
    )
    with pytest.raises(ResourceLocked):
        await channel.consumers.get("sac")

    assert not connection.is_closed


async def test_channel_numbers_are_used_again(connection: Connection) -> None:
    """A connection never runs out of them, in whichever way channels end."""
    numbers = set()
    for turn in range(60):
        channel = await connection.channel()
        numbers.add(channel.number)
        if turn % 3 == 0:
            with pytest.raises(NotFound):
                await channel.declarations.declare_queue("missing", passive=True)
        elif turn % 3 == 1:
            await channel.close()
        else:
            channel.abandon()
            await channel.close()

    assert len(numbers) <= 22  # those of the 20 channels that RabbitMQ has closed rest
    assert "0 channels" in repr(connection)


async def test_open_channels_never_share_a_number(connection: Connection) -> None:
    """A number that is free in the middle is taken before one that is not."""
    channels = [await connection.channel() for _ in range(3)]
    await channels.pop(0).close()
    channels += [await connection.channel() for _ in range(2)]
    for channel in channels:
        await channel.barrier()

    assert sorted(channel.number for channel in channels) == [1, 2, 3, 4]


async def test_unacked_messages_of_a_closed_channel_come_back_in_order(
    connection: Connection,
) -> None:
    """Closing is how a consumer gives up: in their old order, and before newer ones."""
    first = await connection.channel()
    await first.publisher.confirm_select()
    await first.declarations.declare_queue("q", arguments={**QUORUM, "x-delivery-limit": 100})
    inbox = Inbox()
    await first.consumers.consume("q", inbox)
    await send(first, "q", b"1", b"2", b"3", b"4")
    await inbox.until(4)
    first.consumers.ack(inbox.deliveries[1].tag)
    await first.close()
    second = await connection.channel()
    again = Inbox()
    await second.consumers.consume("q", again)
    await again.until(3)

    assert again.bodies == [b"1", b"3", b"4"]
    assert all(each.redelivered for each in again.deliveries)


async def test_rabbitmq_cancels_the_consumer_of_a_deleted_queue(confirming: Channel) -> None:
    """The consumer is told; the channel stays open."""
    cancelled: asyncio.Queue[str] = asyncio.Queue()
    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    tag = await confirming.consumers.consume(
        "q", lambda delivery: None, on_cancel=cancelled.put_nowait
    )
    await confirming.declarations.delete_queue("q")

    assert await asyncio.wait_for(cancelled.get(), WITHIN_S) == tag
    assert confirming.close_reason is None


async def test_a_callback_that_fails_costs_the_channel(
    connection: Connection,
) -> None:
    """Its unsettled messages come back; other channels go on; the fault is reported."""
    loop = asyncio.get_running_loop()
    reports: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: reports.append(context))
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.declarations.declare_queue("q", arguments=QUORUM)
    await send(channel, "q", b"1")

    def fail(delivery: object) -> None:
        raise RuntimeError("a fault")

    with contextlib.suppress(ChannelClosed):
        await channel.consumers.consume("q", fail)
    await asyncio.wait_for(channel.closed.wait(), WITHIN_S)
    loop.set_exception_handler(None)

    assert isinstance(reports[0]["exception"], RuntimeError)
    assert "a fault" in str(channel.close_reason)
    other = await connection.channel()
    inbox = Inbox()
    await other.consumers.consume("q", inbox)
    await inbox.until(1)


async def test_closing_a_channel_fails_what_is_unconfirmed(connection: Connection) -> None:
    """Whether the message arrived is unknown, and that is what the publisher hears."""
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.declarations.declare_queue("q", arguments=QUORUM)
    outcomes: list[BrokerError | None] = []
    for _ in range(3):
        channel.publisher.publish("", "q", PLAIN, b"", settled=outcomes.append)
    await channel.close()

    assert [type(each) for each in outcomes] == [ChannelClosed] * 3


async def test_a_stream_is_read_from_an_offset(confirming: Channel) -> None:
    """Deliveries carry the offset; acks of many share a frame there, too."""
    await confirming.declarations.declare_queue("s", arguments={"x-queue-type": "stream"})
    await send(confirming, "s", *(b"%d" % number for number in range(50)))
    await confirming.consumers.qos(10)
    inbox = Inbox()

    def take(delivery: object) -> None:
        inbox(delivery)  # type: ignore[arg-type]
        confirming.consumers.ack(inbox.deliveries[-1].tag)

    await confirming.consumers.consume("s", take, arguments={"x-stream-offset": long(20)})
    await inbox.until(30)

    assert inbox.bodies == [b"%d" % number for number in range(20, 50)]
    first = Properties.decode(inbox.deliveries[0].properties)
    assert (first.headers or {})["x-stream-offset"] == long(20)


async def test_what_rabbitmq_sends_behind_its_close_costs_the_channel_alone(
    confirming: Channel, connection: Connection
) -> None:
    """It delivers until the channel has read the answer, and longer than a number takes to open."""
    await confirming.declarations.declare_queue("q")
    await send(confirming, "q", *(b"%d" % number for number in range(5_000)))
    for _ in range(10):
        channel, inbox = await connection.channel(), Inbox()
        await channel.consumers.consume("q", inbox)
        await inbox.until(1)
        channel.publisher.publish("missing", "", PLAIN, b"")
        await asyncio.wait_for(channel.closed.wait(), WITHIN_S)

    await send(confirming, "q", b"the last")
    assert not connection.is_closed


async def test_a_channel_that_does_not_answer_its_close_ends_the_connection(
    broker: Broker, vhost: str, confirming: Channel
) -> None:
    """Otherwise RabbitMQ would keep the channel's unacked messages."""

    async def is_back() -> bool:
        return await confirming.consumers.get("q") is not None

    await confirming.declarations.declare_queue("q", arguments=QUORUM)
    await send(confirming, "q", b"a")
    with Relay(broker.url_of(vhost), holds=lambda frame: frame.name == "Channel.Close") as relay:
        silent = await Connection.open(parse_url(relay.url), name="silent", timeout_s=1)
        channel = await silent.channel()
        assert await channel.consumers.get("q") is not None
        with pytest.raises(BrokerSilent):
            await channel.close()
        assert silent.is_closed
        await until(is_back)
