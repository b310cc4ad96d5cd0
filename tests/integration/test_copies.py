"""What RabbitMQ brings again while the bridge holds it is not settled before that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Abandon, Disposition, Received, Release
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Client, Door, open_door_unseeing

ORDERS = model.Queue(name="orders", lock_duration_ms=300_000, max_delivery_count=10)

CHANNELS = """
[Pid || Pid <- rabbit_channel:list(),
    [{{vhost, <<"{vhost}">>}}] <- [rabbit_channel:info(Pid, [vhost])]]"""

MEMBER = """
amqqueue:get_pid(element(2,
    rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"orders">>))))"""

LOSE_SIGHT = (
    f"[ra:process_command({MEMBER}, {{{{down, Pid, noconnection}}}}) || Pid <- {CHANNELS}]."
)
"""What a queue's leader is told when it loses its connection to the node of these channels."""

SEE_AGAIN = f"ra:process_command({MEMBER}, {{{{nodeup, node()}}}})."


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker, vhost: str) -> AsyncIterator[Door]:
    """A bridge whose RabbitMQ may be a cluster."""
    if broker.node is None:
        pytest.skip("a queue can be told that it has lost sight of a node on a node of ours only")
    async with open_door_unseeing(endpoint, broker, vhost, ORDERS) as opened:
        yield opened


async def held_twice(
    door: Door, client: Client, broker: Broker, vhost: str, channel: Channel
) -> tuple[Received, Received]:
    """Return a message that the bridge holds and was brought again, and the one behind it."""
    assert broker.node is not None

    async def is_ready() -> bool:
        return (await channel.declarations.declare_queue("orders", passive=True)).messages > 0

    await door.send("a")
    (held,) = await client.receive()
    told = await asyncio.to_thread(broker.node.rabbitmqctl, "eval", LOSE_SIGHT.format(vhost=vhost))
    assert "{ok," in told, "the queue was told nothing"
    await until(is_ready)
    client.receiver.add_credit(1)
    await asyncio.to_thread(broker.node.rabbitmqctl, "eval", SEE_AGAIN.format(vhost=vhost))
    await door.send("b")
    (behind,) = await client.wait(1)
    assert behind.record.body == b"b", "given to somebody while it is locked"
    return held, behind


@pytest.mark.parametrize(
    "disposition",
    [
        pytest.param(Abandon(), id="abandoned"),
        pytest.param(Release(), id="released", marks=pytest.mark.long),
    ],
)
async def test_a_message_that_came_twice_and_is_given_back_comes_again(
    door: Door, broker: Broker, vhost: str, confirming: Channel, disposition: Disposition
) -> None:
    """RabbitMQ had only the second delivery of it."""
    client = door.client()
    held, _ = await held_twice(door, client, broker, vhost, confirming)
    assert held.lock_token is not None
    await door.namespace.settle(door.path, held.lock_token, disposition)
    (again,) = await client.receive()
    assert (again.record.body, again.sequence_number) == (b"a", held.sequence_number)
    await door.complete(again)


@pytest.mark.long
async def test_a_message_that_came_twice_comes_again_when_its_lock_is_lost(
    door: Door, broker: Broker, vhost: str, confirming: Channel
) -> None:
    """As any other that was locked."""
    assert broker.node is not None
    client = door.client()
    await held_twice(door, client, broker, vhost, confirming)
    ctl = broker.node.rabbitmqctl
    await asyncio.to_thread(ctl, "close_all_connections", "--vhost", vhost, "test")
    again = await client.receive(2)
    assert {each.record.body for each in again} == {b"a", b"b"}


@pytest.mark.long
async def test_a_message_that_came_twice_is_completed_once(
    door: Door, broker: Broker, vhost: str, confirming: Channel
) -> None:
    """The copy that waited for it is gone as well."""
    assert broker.node is not None
    client = door.client()
    both = await held_twice(door, client, broker, vhost, confirming)
    await door.complete(*both)
    columns = ("-p", vhost, "name", "messages")

    async def is_empty() -> bool:
        assert broker.node is not None
        rows = await asyncio.to_thread(broker.node.rabbitmqctl, "list_queues", *columns)
        return "orders\t0\n" in rows

    await until(is_empty)
    assert door.namespace.counters.second_copies > 0
    assert not client.received
