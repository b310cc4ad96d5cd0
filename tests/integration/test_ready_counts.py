"""What queues are said to hold while they do not answer RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerSilent
from bridge.broker.ready_counts import ReadyCounts, queue_state
from bridge.model import entity as model
from bridge.topology import names
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import open_door

QUEUE = model.Queue(name="orders")
RESOURCE = names.active_queue(QUEUE.name)


@asynccontextmanager
async def standing_still(broker: Broker, vhost: str) -> AsyncIterator[None]:
    """The queue's Raft server does nothing."""

    async def eval_(verb: str) -> None:
        code = f"sys:{verb}(whereis('{vhost}_{RESOURCE}'))."
        await asyncio.to_thread(broker.node.rabbitmqctl, "eval", code)

    await eval_("suspend")
    try:
        yield
    finally:
        await eval_("resume")


async def test_a_queue_that_does_not_answer_is_not_said_to_be_empty(
    endpoint: Endpoint, confirming: Channel, broker: Broker, vhost: str
) -> None:
    """RabbitMQ says so after 250 ms. A count is then the last one that was true."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await door.send("a", "b", "c")

        async def active() -> int:
            (counts,) = await door.namespace.counting.counts([QUEUE])
            return counts.active

        async def is_there() -> bool:
            return await active() == 3 and (await queue_state(confirming, RESOURCE)).messages == 3

        await until(is_there)
        async with standing_still(broker, vhost):
            state = await confirming.declarations.declare_queue(RESOURCE, passive=True)
            assert (state.messages, state.consumers) == (0, 0)
            with pytest.raises(BrokerSilent):
                await queue_state(confirming, RESOURCE)
            assert await active() == 3
        assert (await queue_state(confirming, RESOURCE)).messages == 3


async def test_a_queue_that_exists_and_cannot_be_reached_is_not_said_to_be_missing(
    endpoint: Endpoint, connection: Connection, broker: Broker, vhost: str
) -> None:
    """RabbitMQ answers 404 of it, too, as of one that does not exist."""
    name = f'rabbit_misc:r(<<"{vhost}">>, queue, <<"{RESOURCE}">>)'

    async def set_state(state: str) -> None:
        code = f"rabbit_amqqueue:update({name}, fun(Q) -> amqqueue:set_state(Q, {state}) end)."
        await asyncio.to_thread(broker.node.rabbitmqctl, "eval", code)

    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await door.send("a")
        await set_state("crashed")
        counts = ReadyCounts(connection)
        await counts.ask([RESOURCE, "no-such-queue"])
        assert counts.missing == {"no-such-queue"}
        with pytest.raises(BrokerSilent):
            counts.of(RESOURCE)
        await set_state("live")
        await counts.ask([RESOURCE])
        assert counts.of(RESOURCE) == 1


async def test_the_ownership_token_is_no_message_of_a_queue_that_nobody_numbers(
    endpoint: Endpoint, confirming: Channel, broker: Broker
) -> None:
    """A queue that was just made is empty; what is sent to it then is counted."""
    urls = endpoint, broker.management_url
    async with open_door(*urls, QUEUE, with_sidecar=False) as door:
        token = Properties(headers={"x-busbridge-kind": ("S", b"baton")}, delivery_mode=2)
        await confirming.publisher.publish_confirmed(
            "", names.inbox(QUEUE.name), token.encode(), bytes(16)
        )

        async def active() -> int:
            (counts,) = await door.namespace.counting.counts([QUEUE])
            return counts.active

        assert await active() == 0
        await door.send("a", "b")
        assert await active() == 2
