"""MaxSizeInMegabytes: a full entity refuses what is sent, and nothing accepted is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.client import ServiceBusMessage
from bridge.client.aio import ServiceBusClient
from bridge.client.exceptions import ServiceBusQuotaExceededError
from bridge.engine.api import Complete
from bridge.message.envelopes import Outgoing
from bridge.model import entity as model
from bridge.model.errors import QuotaExceeded
from bridge.model.name import EntityPath
from bridge.wire import headers
from bridge.wire.basic import Properties, text
from bridge.wire.record import Record
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door
from tests.integration.session_door import SessionClient

pytestmark = pytest.mark.long

QUEUES = (model.Queue(name="orders", max_size_mb=1), model.Queue(name="other"))
BODY_BYTES = 200_000


def message(number: int) -> Outgoing:
    """A large message."""
    properties = Properties(message_id=str(number), headers={}, delivery_mode=2)
    return Outgoing(record=Record(properties, bytes(BODY_BYTES)), size_bytes=BODY_BYTES)


async def fill(door: Door) -> int:
    """Send until it is refused; return how many were accepted."""
    accepted = 0

    async def is_refused() -> bool:
        nonlocal accepted
        try:
            await door.namespace.send(door.path, [message(accepted)])
        except QuotaExceeded:
            return True
        accepted += 1
        return False

    await until(is_refused)
    return accepted


async def test_a_full_entity_refuses_sends(endpoint: Endpoint, broker: Broker) -> None:
    """At every bridge, until some have left it; what was accepted keeps order and numbers."""
    async with (
        open_door(endpoint, broker.management_url, *QUEUES) as door,
        open_door(endpoint, broker.management_url, *QUEUES, with_sidecar=False) as second,
    ):
        accepted = await fill(door)
        await until(lambda: _is_refused(second))
        await door.namespace.send(EntityPath("other"), [message(0)])
        client = door.client()
        for number in range(1, accepted + 1):
            (received,) = await client.receive()
            assert received.sequence_number == number
            assert received.record.properties.message_id == str(number - 1)
            await door.complete(received)
        for each in (door, second):
            await until(lambda each=each: _is_accepted(each), within_s=120)  # type: ignore[misc]
        received = (await client.receive(2))[1]
        assert received.sequence_number == accepted + 2


async def test_what_is_held_does_not_count(endpoint: Endpoint, broker: Broker) -> None:
    """So a queue that is full has messages that are ready, by which it is told from a dead one."""
    async with open_door(endpoint, broker.management_url, *QUEUES) as door:
        accepted = await fill(door)
        connection = await Connection.open(endpoint, name="test")
        channel = await connection.channel()
        held: list[Delivery] = []

        async def hold_all() -> bool:
            while (delivery := await channel.consumers.get("orders")) is not None:
                held.append(delivery)
            return len(held) >= accepted

        await until(hold_all)
        await until(lambda: _is_accepted(door), within_s=120)
        await until(hold_all)
        assert not door.sidecar.silent
        await connection.close()


async def test_a_client_of_the_library_is_told(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """Its messages would wait in the inbox without an end; with room it may send again."""
    async with (
        open_door(endpoint, broker.management_url, *QUEUES) as door,
        ServiceBusClient.from_connection_string(broker.url_of(vhost)) as client,
    ):
        accepted = await fill(door)
        async with client.get_queue_sender("orders") as sender:
            with pytest.raises(ServiceBusQuotaExceededError, match="maximum entity size"):
                await sender.send_messages(ServiceBusMessage("one more"))
            for received in await door.client().receive(accepted):
                await door.complete(received)

            async def is_sent() -> bool:
                try:
                    await sender.send_messages(ServiceBusMessage("one more"))
                except ServiceBusQuotaExceededError:
                    return False
                return True

            await until(is_sent, within_s=120)


async def test_an_entity_made_anew_is_not_full(endpoint: Endpoint, broker: Broker) -> None:
    """At no bridge."""
    async with (
        open_door(endpoint, broker.management_url, *QUEUES) as door,
        open_door(endpoint, broker.management_url, *QUEUES, with_sidecar=False) as second,
    ):
        await fill(door)
        await until(lambda: _is_refused(second))
        await door.namespace.administration.delete("orders")
        await door.namespace.administration.create(QUEUES[0])
        assert not await _is_refused(door)
        await until(lambda: second.namespace.directory.find("orders") == _queue_of(door))
        assert not await _is_refused(second)


def _queue_of(door: Door) -> object:
    return door.namespace.directory.find("orders")


async def test_a_full_session_entity_refuses_sends(endpoint: Endpoint, broker: Broker) -> None:
    """A bridge holds all its messages, and they count all the same; with room it takes more."""
    queue = model.Queue(name="orders", max_size_mb=1, requires_session=True)
    async with open_door(endpoint, broker.management_url, queue) as door:
        client = await SessionClient(door).accept("s")
        for number in range(6):
            await door.namespace.send(door.path, [of_session_and_size(number)])

        async def is_refused() -> bool:
            await door.namespace.reconciler.check()
            return await _is_refused(door)

        await until(is_refused, within_s=120)
        client.receiver.add_credit(6)
        for received in await client.wait(6):
            assert received.lock_token is not None
            await door.namespace.settle(door.path, received.lock_token, Complete())

        async def is_accepted() -> bool:
            return not await _is_refused(door)

        await until(is_accepted, within_s=120)


def of_session_and_size(number: int) -> Outgoing:
    """A large message of a session."""
    large = message(number)
    large.record.properties.headers = {headers.SESSION_ID: text("s")}
    return replace(large, session_id="s")


async def _is_refused(door: Door) -> bool:
    try:
        await door.namespace.schedule(door.path, [])
    except QuotaExceeded:
        return True
    return False


async def _is_accepted(door: Door) -> bool:
    try:
        await door.namespace.send(door.path, [message(0)])
    except QuotaExceeded:
        return False
    return True
