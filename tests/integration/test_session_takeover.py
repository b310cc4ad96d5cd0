"""How a bridge begins to hold a session entity's messages, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.handover import HandOver, Publish
from bridge.engine.ownership import asking
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending import sender
from bridge.engine.sessions import shard_channels, takeover
from bridge.engine.sessions.shard_channels import ShardChannels
from bridge.engine.sessions.takeover import take_over
from bridge.model import entity as model
from bridge.topology import names, parts
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import open_door
from tests.integration.session_door import SessionClient

COUNT = 500
BODY = b"x" * 10_000
"""More than is read at once."""

LATE_S = 0.4
QUEUE = model.Queue(name="orders", requires_session=True)
RESOURCE = names.active_queue(QUEUE.name)


@asynccontextmanager
async def filled(
    endpoint: Endpoint, confirming: Channel
) -> AsyncIterator[tuple[ConsumerConnections, list[Delivery]]]:
    """A queue with messages, connections to it, and where they are put."""
    await confirming.declarations.declare_queue(parts.active_queue(QUEUE.name))
    properties = Properties(delivery_mode=2).encode()
    publishes = [Publish("", RESOURCE, properties, BODY)] * COUNT
    await HandOver(confirming).move(publishes, failpoint="bench.hop")

    async def on_up(connection: object) -> None:
        pass

    connections = ConsumerConnections(endpoint, name="test", on_up=on_up)
    connections.start()
    try:
        async with asyncio.timeout(120):
            yield connections, []
    finally:
        await connections.close()


async def taken(
    connections: ConsumerConnections, arrived: list[Delivery], windows: ShardChannels
) -> int:
    """Take the queue over; return how many messages had come when that was done."""
    await take_over(
        RESOURCE,
        windows,
        connections=connections,
        has_been_lost=False,
        arrived=lambda: len(arrived),
    )
    windows.close()
    return len(arrived)


def of(
    connections: ConsumerConnections,
    on_delivery: Callable[[Delivery], None],
    *,
    consumes_once: bool = False,
) -> ShardChannels:
    """What consumes the queue."""
    return ShardChannels(
        RESOURCE,
        connections.route(RESOURCE),
        consumes_once=consumes_once,
        on_delivery=on_delivery,
        on_lost=lambda error: None,
    )


async def test_what_rabbitmq_has_given_out_is_waited_for(
    endpoint: Endpoint, confirming: Channel
) -> None:
    """Also when it is long on its way: what came later would be out of order."""
    async with filled(endpoint, confirming) as (connections, arrived):

        def on_delivery(delivery: Delivery) -> None:
            arrived.append(delivery)
            if len(arrived) == 1:
                socket = delivery.channel._transport._socket
                assert socket is not None
                socket.pause_reading()
                asyncio.get_running_loop().call_later(LATE_S, socket.resume_reading)

        assert await taken(connections, arrived, of(connections, on_delivery)) == COUNT


async def test_no_channel_consumes_twice_where_rabbitmq_would_lose_sight_of_it(
    endpoint: Endpoint, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All comes, in order; a channel whose messages are settled ends."""
    monkeypatch.setattr(shard_channels, "WINDOW", 20)
    monkeypatch.setattr(shard_channels, "SPENT_S", 0.1)
    async with filled(endpoint, confirming) as (connections, arrived):
        consumed: dict[Channel, set[str]] = {}
        held: list[Delivery] = []

        def on_delivery(delivery: Delivery) -> None:
            arrived.append(delivery)
            consumed.setdefault(delivery.channel, set()).add(delivery.consumer_tag)
            held.append(delivery)
            if len(held) > 30:
                settled = held.pop(0)
                settled.channel.consumers.ack(settled.tag)

        consuming = of(connections, on_delivery, consumes_once=True)
        await consuming.begin()
        await until(lambda: len(arrived) == COUNT)
        assert all(len(tags) == 1 for tags in consumed.values())
        await until(lambda: sum(each.close_reason is None for each in consumed) <= 4)
        consuming.close()


async def test_a_queue_that_does_not_answer_is_not_empty(
    endpoint: Endpoint, confirming: Channel, broker: Broker, vhost: str
) -> None:
    """RabbitMQ says so of one that takes longer than 250 ms: 0 messages, 0 consumers."""
    async with filled(endpoint, confirming) as (connections, arrived):
        process = f"'{vhost}_{RESOURCE}'"
        later = (
            f"P = whereis({process}), sys:suspend(P), timer:apply_after(1500, sys, resume, [P])."
        )
        eval_ = partial(broker.node.rabbitmqctl, "eval", later)
        await asyncio.to_thread(eval_)
        state = await confirming.declarations.declare_queue(RESOURCE, passive=True)
        assert (state.messages, state.consumers) == (0, 0)
        assert await taken(connections, arrived, of(connections, arrived.append)) == COUNT


async def test_a_long_takeover_lasts_no_longer_than_who_waits(
    endpoint: Endpoint, broker: Broker, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accept ends when its own time is over, not when a question of bridges is."""
    monkeypatch.setattr(sender, "REPLY_TIMEOUT_S", 0.3)
    monkeypatch.setattr(asking, "REPLY_TIMEOUT_S", 0.3)
    monkeypatch.setattr(takeover, "GONE_S", 1.5)
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await confirming.consumers.consume(names.active_queue("orders"), lambda delivery: None)
        client = await SessionClient(door).accept("a")
        assert client.receiver.session_id == "a"


async def test_health_names_a_takeover_that_lasts(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Another consumer has messages, or may have some: no session is given out before."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        waits = door.namespace._supervisor.waits
        await confirming.consumers.consume(names.active_queue("orders"), lambda delivery: None)
        accepting = asyncio.ensure_future(SessionClient(door).accept("a"))
        await until(lambda: any("before its sessions" in each for each in waits.sentences()))
        assert (await accepting).receiver.session_id == "a"
        await until(lambda: not waits.sentences())
