"""What a create or an update answers is in force: RabbitMQ keeps to it from then on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import PublishRefused
from bridge.model import entity as model
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import open_door

TOGETHER = 12
MESSAGE = Properties(delivery_mode=2).encode()


async def deliveries_of_one(channel: Channel, queue: str, at_most: int) -> int:
    """Reject a message until RabbitMQ has it no more; how often it was delivered."""
    await channel.publisher.publish_confirmed("", queue, MESSAGE, b"failing")
    count = 0
    while count < at_most:
        got = await channel.consumers.get(queue)
        if got is None:
            break
        count += 1
        channel.consumers.reject(got.tag, True)
        await channel.barrier()
    return count


async def confirming_on(connection: Connection) -> Channel:
    """Open a channel with confirms."""
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    return channel


async def fill(channel: Channel, queue: str) -> None:
    """Publish 32 MiB."""
    for _ in range(64):
        await channel.publisher.publish_confirmed("", queue, MESSAGE, bytes(1 << 19))


async def test_max_delivery_count_is_in_force_when_creates_at_once_are_answered(
    endpoint: Endpoint, broker: Broker, connection: Connection
) -> None:
    """Entities of equal settings share a policy: each create must leave the others in it."""
    async with open_door(endpoint, broker.management_url) as door:

        async def one(number: int) -> int:
            channel = await confirming_on(connection)
            queue = model.Queue(name=f"orders-{number}", max_delivery_count=10)
            await door.namespace.administration.create(queue)
            return await deliveries_of_one(channel, queue.name, 20)

        counts = await asyncio.gather(*map(one, range(TOGETHER)))
        assert counts == [10] * TOGETHER


async def test_max_delivery_count_is_in_force_when_two_bridges_create_at_once(
    endpoint: Endpoint, broker: Broker, connection: Connection
) -> None:
    """Each leaves the other's entities in the shared policy, or puts them back at once."""
    async with (
        open_door(endpoint, broker.management_url) as door,
        open_door(endpoint, broker.management_url) as other,
    ):
        names = [f"orders-{number}" for number in range(TOGETHER)]

        async def one(number: int) -> None:
            at = (door, other)[number % 2]
            await at.namespace.administration.create(model.Queue(name=names[number]))

        await asyncio.gather(*map(one, range(TOGETHER)))
        channel = await confirming_on(connection)
        counts = [await deliveries_of_one(channel, name, 20) for name in names]
        assert counts == [10] * TOGETHER


async def test_max_delivery_count_is_in_force_when_an_update_is_answered(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Longer or shorter, again and again, with other entities changed at the same moment."""
    async with open_door(endpoint, broker.management_url) as door:
        administration = door.namespace.administration
        queues = [
            await administration.create(model.Queue(name=f"orders-{number}")) for number in range(4)
        ]
        for count in (3, 8, 2, 5):
            made = [replace(each, max_delivery_count=count) for each in queues]
            await asyncio.gather(*map(administration.update, made))
            counts = [await deliveries_of_one(confirming, each.name, 20) for each in made]
            assert counts == [count] * len(made)


async def test_time_to_live_and_size_are_in_force_when_creates_at_once_are_answered(
    endpoint: Endpoint, broker: Broker, connection: Connection
) -> None:
    """A message expires, and a full queue refuses, whoever publishes it."""
    async with open_door(endpoint, broker.management_url) as door:

        async def one(number: int) -> None:
            channel = await confirming_on(connection)
            short = model.Queue(
                name=f"short-{number}", default_message_time_to_live_ms=1_000, max_size_mb=1
            )
            await door.namespace.administration.create(short)
            await channel.publisher.publish_confirmed("", short.name, MESSAGE, b"x")

            async def is_gone() -> bool:
                state = await channel.declarations.declare_queue(short.name, passive=True)
                return state.messages == 0

            await until(is_gone, within_s=120)
            with pytest.raises(PublishRefused):
                await fill(channel, short.name)

        await asyncio.gather(*map(one, range(TOGETHER)))
