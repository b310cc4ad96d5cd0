"""Settlements that publish, and whose target queue refuses the message: peeks show it all the same.

The stream of moved messages, from which peeks are answered, has room and takes its copy.
"""

from __future__ import annotations

import asyncio

import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.client.aio import ServiceBusClient
from bridge.client.exceptions import ServiceBusError as LibraryError
from bridge.engine.api import Complete, DeadLetter, Defer, ReceiveMode
from bridge.model import entity as model
from bridge.model.errors import QuotaExceeded, ServiceBusError
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

ORDERS = model.Queue(name="orders", lock_duration_ms=300_000)
SENT = 12


async def shown(door: Door) -> dict[int, bool]:
    """Return the numbers that a peek shows beside the dead letters, and which are deferred."""
    peeked = await door.namespace.peek(door.path, 0, 250)
    return {each.sequence_number: each.is_deferred for each in peeked}


async def test_a_deferral_that_a_full_queue_refuses(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message stays active for peeks, until it is completed: of a bridge that starts, too."""
    monkeypatch.setattr("bridge.topology.parts.DEFERRED_MAX", 3)
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*map(str, range(SENT)))
        assert len(await shown(door)) == SENT
        messages = await door.client().receive(SENT)
        is_deferred = {}
        for each in messages:
            assert each.lock_token is not None
            try:
                await door.namespace.settle(door.path, each.lock_token, Defer())
                is_deferred[each.sequence_number] = True
            except QuotaExceeded:
                is_deferred[each.sequence_number] = False
        refused = [each for each in messages if not is_deferred[each.sequence_number]]
        assert len(refused) > 2
        assert await shown(door) == is_deferred
        async with open_door(endpoint, broker.management_url, ORDERS) as other:
            assert await shown(other) == is_deferred
        assert refused[0].lock_token is not None
        await door.namespace.settle(door.path, refused[0].lock_token, Complete())
        del is_deferred[refused[0].sequence_number]
        assert await shown(door) == is_deferred
        async with open_door(endpoint, broker.management_url, ORDERS) as other:
            assert await shown(other) == is_deferred


async def test_a_dead_lettering_whose_queue_was_deleted(endpoint: Endpoint, broker: Broker) -> None:
    """The message stays active for peeks, and is a dead letter when the queue is there again."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send("a", "b")
        assert len(await shown(door)) == 2
        one, two = await door.client().receive(2)
        assert one.lock_token is not None
        connection = await Connection.open(endpoint, name="test")
        channel = await connection.channel()
        await channel.declarations.delete_queue(names.dead_letter_queue("orders"))
        with pytest.raises(ServiceBusError):
            await door.namespace.settle(door.path, one.lock_token, DeadLetter(reason="mine"))
        assert await shown(door) == {1: False, 2: False}

        async def is_dead() -> bool:
            assert one.lock_token is not None
            try:
                await door.namespace.settle(door.path, one.lock_token, DeadLetter(reason="mine"))
            except ServiceBusError:
                return False
            return True

        await until(is_dead)
        assert await shown(door) == {2: False}
        (dead,) = await door.namespace.peek(door.dead_letters, 0, 10)
        assert dead.sequence_number == 1
        await door.complete(two)
        assert await shown(door) == {}
        await connection.close()


async def test_a_deferral_of_a_client_of_the_library_that_a_full_queue_refuses(
    endpoint: Endpoint, broker: Broker, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered, the message stays locked, and peeks show it as active."""
    monkeypatch.setattr("bridge.topology.parts.DEFERRED_MAX", 3)
    # A peek by counts would lack what the client has locked since it last told how much it holds.
    monkeypatch.setattr("bridge.engine.browse.unrecorded_settlements.LOOK_S", 600.0)
    async with (
        open_door(endpoint, broker.management_url, ORDERS) as door,
        ServiceBusClient.from_connection_string(broker.url_of(vhost)) as client,
    ):
        await door.send(*map(str, range(SENT)))
        assert len(await shown(door)) == SENT
        is_deferred = {}
        async with client.get_queue_receiver("orders") as receiver:
            messages = []
            while len(messages) < SENT:
                messages += await receiver.receive_messages(SENT - len(messages), max_wait_time=9)
            for each in messages:
                try:
                    await asyncio.wait_for(receiver.defer_message(each), 120)
                    is_deferred[each.sequence_number] = True
                except LibraryError:
                    is_deferred[each.sequence_number] = False
            refused = [each for each in messages if not is_deferred[each.sequence_number]]
            assert len(refused) > 2
            assert await shown(door) == is_deferred
            for each in refused:
                await receiver.complete_message(each)
        kept = {number: True for number, there in is_deferred.items() if there}

        async def are_shown() -> bool:
            return await shown(door) == kept

        await until(are_shown)
        found = await door.namespace.receive_deferred(
            door.path, sorted(kept), ReceiveMode.RECEIVE_AND_DELETE
        )
        assert [each.sequence_number for each in found] == sorted(kept)
