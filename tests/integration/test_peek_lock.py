"""Peek-lock on a real RabbitMQ: locks, counts, and no message that nobody asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Received,
    ReceiveMode,
    Release,
)
from bridge.model import entity as model
from bridge.model.errors import ArgumentOutOfRange, MessageLockLost, NotAllowed
from bridge.wire.basic import text
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

ORDERS = model.Queue(name="orders", lock_duration_ms=5_000, max_delivery_count=4)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue."""
    async with open_door(endpoint, broker.management_url, ORDERS) as opened:
        yield opened


async def ready(channel: Channel, queue: str) -> int:
    """How many messages wait in a queue, as RabbitMQ says."""
    return (await channel.declarations.declare_queue(queue, passive=True)).messages


async def test_messages_come_in_order_with_numbers_and_are_gone_when_completed(
    door: Door, confirming: Channel
) -> None:
    """Three sends are three messages, numbered from 1; completing them empties the queue."""
    await door.send("a", "b", "c")
    client = door.client()
    received = await client.receive(3)

    assert [each.record.body for each in received] == [b"a", b"b", b"c"]
    assert [each.sequence_number for each in received] == [1, 2, 3]
    assert [each.delivery_count for each in received] == [0, 0, 0]
    await door.complete(*received)
    await door.namespace.close()
    assert await ready(confirming, "orders") == 0


async def test_one_by_one_and_many_at_once_do_not_mix(door: Door) -> None:
    """The next messages come, and all locks stand, whichever portions came before.

    RabbitMQ takes a consumer whose tag is the delivery tag of a message that was got for the same.
    """
    await door.send(*(str(number) for number in range(60)))
    client = door.client()
    received = []
    for count in (5, 1, 1, 10, 1, 1, 1, 8, 1, 1, 14, 1, 15):
        received += await client.receive(count)

    assert [each.sequence_number for each in received] == list(range(1, 61))
    await door.complete(*received)


async def test_an_abandoned_message_comes_again_at_once_with_one_more_on_its_count(
    door: Door,
) -> None:
    """Its number stays, and it comes before what was sent later."""
    await door.send("a", "b")
    client = door.client()
    for count in range(3):
        (received,) = await client.receive()
        assert (received.sequence_number, received.delivery_count) == (1, count)
        assert received.lock_token is not None
        await door.namespace.settle(door.path, received.lock_token, Abandon())


async def test_abandoning_with_properties_keeps_number_and_count(door: Door) -> None:
    """Changed properties are merged; the count goes on, and the limit still holds."""
    await door.namespace.send(door.path, [outgoing("a", colour="red")])
    client = door.client()
    for count in range(ORDERS.max_delivery_count):
        (received,) = await client.receive()
        assert (received.sequence_number, received.delivery_count) == (1, count)
        table = received.record.properties.headers or {}
        assert table["colour"] == text("red")
        assert table.get("tries") == (None if count == 0 else text(str(count - 1)))
        assert received.lock_token is not None
        changed = Abandon(properties={"tries": text(str(count))})
        await door.namespace.settle(door.path, received.lock_token, changed)

    (dead,) = await door.client(path=door.dead_letters).receive()
    table = dead.record.properties.headers or {}
    assert table["DeadLetterReason"] == text("MaxDeliveryCountExceeded")
    assert table["tries"] == text("3")
    assert dead.sequence_number == 1


async def test_fifty_releases_leave_the_count_at_zero(door: Door) -> None:
    """A released message is available again and was not delivered in vain."""
    await door.send("a")
    client = door.client()
    for _ in range(50):
        (received,) = await client.receive()
        assert received.delivery_count == 0
        assert received.lock_token is not None
        await door.namespace.settle(door.path, received.lock_token, Release())
    (received,) = await client.receive()
    await door.complete(received)


async def test_a_lock_that_expires_gives_the_message_back_and_its_settlement_fails(
    door: Door,
) -> None:
    """After LockDuration the message comes again, counted once, and the old token is lost."""
    await door.send("a")
    client = door.client()
    (first,) = await client.receive()
    (second,) = await client.receive()

    assert second.delivery_count == 1
    assert first.locked_until_ms is not None
    assert second.locked_until_ms is not None
    assert second.locked_until_ms >= first.locked_until_ms + ORDERS.lock_duration_ms
    with pytest.raises(MessageLockLost, match="The lock supplied is invalid"):
        await door.complete(first)
    await door.complete(second)


async def test_a_renewed_lock_lasts_its_full_duration_from_then(door: Door) -> None:
    """Renewing moves the end, and the message stays locked beyond its first end."""
    await door.send("a")
    client = door.client()
    (received,) = await client.receive()
    assert received.lock_token is not None
    assert received.locked_until_ms is not None
    await asyncio.sleep(3)
    (until_ms,) = await door.namespace.renew_locks(door.path, [received.lock_token])
    assert until_ms >= received.locked_until_ms + 2_900
    client.receiver.add_credit(1)
    await asyncio.sleep(3.5)
    assert client.received == []
    await door.complete(received)


async def test_a_message_that_fails_too_often_is_dead_lettered(door: Door) -> None:
    """At MaxDeliveryCount failed deliveries RabbitMQ moves it; the reason is Azure's."""
    await door.send("a")
    client = door.client()
    for _ in range(ORDERS.max_delivery_count):
        (received,) = await client.receive()
        assert received.lock_token is not None
        await door.namespace.settle(door.path, received.lock_token, Abandon())

    dead_client = door.client(path=door.dead_letters)
    (dead,) = await dead_client.receive()
    assert dead.dead_letter == (
        "MaxDeliveryCountExceeded",
        "Message couldn't be consumed after maximum delivery attempts.",
    )
    assert (dead.sequence_number, dead.delivery_count) == (1, ORDERS.max_delivery_count)
    assert dead.lock_token is not None
    await door.namespace.settle(door.dead_letters, dead.lock_token, Abandon())
    (again,) = await dead_client.receive()
    assert again.delivery_count == ORDERS.max_delivery_count, "Azure counts no more there"
    await door.complete(again, path=door.dead_letters)


async def test_dead_lettering_keeps_reason_and_description(door: Door) -> None:
    """Both are application properties of the dead letter, which cannot be dead-lettered again."""
    await door.send("a")
    (received,) = await door.client().receive()
    assert received.lock_token is not None
    why = DeadLetter(reason="Broken", description="It does not parse.")
    await door.namespace.settle(door.path, received.lock_token, why)

    (dead,) = await door.client(path=door.dead_letters).receive()
    table = dead.record.properties.headers or {}
    assert table["DeadLetterReason"] == text("Broken")
    assert table["DeadLetterErrorDescription"] == text("It does not parse.")
    assert dead.delivery_count == 0
    assert dead.lock_token is not None
    with pytest.raises(NotAllowed):
        await door.namespace.settle(door.dead_letters, dead.lock_token, why)
    await door.complete(dead, path=door.dead_letters)


@pytest.mark.parametrize("kind", [DeadLetter, Abandon, Defer])
async def test_a_settlement_with_more_properties_than_rabbitmq_takes_is_refused(
    door: Door, kind: type[DeadLetter | Abandon | Defer]
) -> None:
    """RabbitMQ would close the connection that all publish on; the message stays locked."""
    await door.send("one", "two")
    one, two = await door.client().receive(2)
    assert one.lock_token is not None
    huge = kind(properties={f"p{number}": text("x" * 20_000) for number in range(7)})
    with pytest.raises(ArgumentOutOfRange, match="130000 at most"):
        await door.namespace.settle(door.path, one.lock_token, huge)
    await door.send("three")
    await door.complete(one, two)


async def test_receive_and_delete_takes_the_message_out(door: Door, confirming: Channel) -> None:
    """There is no lock, and RabbitMQ has it no more."""
    await door.send("a", "b")
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE)
    received = await client.receive(2)

    assert [each.lock_token for each in received] == [None, None]
    await door.namespace.close()
    assert await ready(confirming, "orders") == 0


async def test_a_receiver_that_leaves_is_given_nothing_from_then_on(door: Door) -> None:
    """A message given to it then would be lost, as nobody settles it."""
    leaving, staying = door.client(ReceiveMode.RECEIVE_AND_DELETE), door.client()
    leaving.receiver.add_credit(1)
    closing = leaving.receiver.close()
    await door.send("a")
    (received,) = await staying.receive()
    await closing
    assert leaving.received == []
    await door.complete(received)


async def test_nothing_is_fetched_that_nobody_asked_for(door: Door, confirming: Channel) -> None:
    """RabbitMQ keeps the rest ready for others, whatever is settled meanwhile."""
    await door.send(*(str(number) for number in range(10)))
    await until_ready(confirming, 10)
    client = door.client()
    received = await client.receive(4)
    assert await ready(confirming, "orders") == 6
    await door.complete(*received[:2])
    assert await ready(confirming, "orders") == 6
    assert received[2].lock_token is not None
    await door.namespace.settle(door.path, received[2].lock_token, Abandon())
    await until_ready(confirming, 7)
    (again,) = await client.receive()
    assert (again.sequence_number, again.delivery_count) == (3, 1)


async def until_ready(channel: Channel, count: int) -> None:
    """Wait until RabbitMQ has this many messages ready."""

    async def is_there() -> bool:
        return await ready(channel, "orders") == count

    await until(is_there)


async def test_five_receivers_that_ask_for_five_and_leave_count_nothing(door: Door) -> None:
    """Each asks for five, completes one, gives the rest back and leaves; nothing counts."""
    await door.send("a", "b", "c", "d", "e")
    completed: list[Received] = []
    for _ in range(5):
        client = door.client()
        client.receiver.add_credit(5)
        await client.wait_for_first()
        await client.receiver.drain()
        first, *rest = client.received
        for each in rest:
            assert each.lock_token is not None
            await door.namespace.settle(door.path, each.lock_token, Release())
        await client.receiver.close()
        await door.complete(first)
        completed.append(first)

    assert {each.delivery_count for each in completed} == {0}
    assert {each.sequence_number for each in completed} == {1, 2, 3, 4, 5}


async def test_a_receiver_that_comes_and_goes_under_load_counts_nothing(door: Door) -> None:
    """Credit is taken back while messages arrive, and no message is counted as failed for it."""
    bodies = [str(number) for number in range(300)]
    sending = asyncio.create_task(door.send(*bodies))
    received: list[Received] = []
    while len(received) < len(bodies):
        client = door.client()
        client.receiver.add_credit(5)
        await client.wait_for_first()
        await client.receiver.drain()
        await client.receiver.close()
        received += client.received
        await door.complete(*client.received)
    await sending

    assert {each.delivery_count for each in received} == {0}
    assert {each.sequence_number for each in received} == set(range(1, len(bodies) + 1))


async def test_after_a_drain_nothing_comes_until_new_credit(door: Door) -> None:
    """Credit that was taken back is not used, and another receiver gets the message."""
    client = door.client()
    client.receiver.add_credit(10)
    await door.send("a")
    await client.wait(1)
    await client.receiver.drain()
    await door.send("b")
    other = door.client()
    (received,) = await other.receive()

    assert received.record.body == b"b"
    assert client.received == []


async def test_a_lock_outlives_its_receiver(door: Door) -> None:
    """A message whose receiver has gone can still be completed, until its lock ends."""
    await door.send("a")
    client = door.client()
    (received,) = await client.receive()
    await client.receiver.close()
    await door.complete(received)


async def test_a_token_settles_only_messages_of_its_own_entity(door: Door) -> None:
    """A token of the queue is unknown to its dead-letter queue, and stays valid."""
    await door.send("a")
    (received,) = await door.client().receive()
    assert received.lock_token is not None
    with pytest.raises(MessageLockLost):
        await door.namespace.settle(door.dead_letters, received.lock_token, Complete())
    await door.complete(received)
