"""Deferral: what is set aside is had by its sequence number only, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import NotFound
from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Disposition,
    Received,
    ReceiveMode,
)
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from bridge.model.errors import (
    MessageLockLost,
    MessageNotFound,
    MessageSizeExceeded,
    NotAllowed,
    QuotaExceeded,
    ServiceBusError,
)
from bridge.model.name import EntityPath
from bridge.topology import names, parts
from bridge.wire import headers
from bridge.wire.basic import Properties, long, text
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

QUEUE = model.Queue(name="orders", lock_duration_ms=5_000, max_delivery_count=3)
PEEK_LOCK = ReceiveMode.PEEK_LOCK


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue."""
    async with open_door(endpoint, broker.management_url, QUEUE) as opened:
        yield opened


async def settle(
    door: Door, received: Received, disposition: Disposition, path: EntityPath | None = None
) -> None:
    """End a lock."""
    assert received.lock_token is not None
    await door.namespace.settle(path or door.path, received.lock_token, disposition)


async def deferred(door: Door, *bodies: str) -> list[int]:
    """Send messages and defer them all; return their numbers."""
    await door.send(*bodies)
    client = door.client()
    messages = await client.receive(len(bodies))
    for each in messages:
        await settle(door, each, Defer())
    await client.receiver.close()
    return [each.sequence_number for each in messages]


async def by_number(door: Door, *numbers: int, mode: ReceiveMode = PEEK_LOCK) -> list[Received]:
    """Receive deferred messages."""
    return await door.namespace.receive_deferred(door.path, numbers, mode)


async def queued(confirming: Channel, queue: str = "orders/$deferred") -> int:
    """How many messages are ready in a queue of RabbitMQ."""
    return (await confirming.declarations.declare_queue(queue, passive=True)).messages


async def is_there(connection: Connection) -> bool:
    """Whether RabbitMQ has the queue of deferred messages."""
    channel = await connection.channel()
    try:
        await queued(channel)
    except NotFound:
        return False
    finally:
        channel.abandon()
    return True


async def test_the_first_defers_make_the_queue_on_two_bridges_at_once(
    endpoint: Endpoint, broker: Broker, door: Door, connection: Connection
) -> None:
    """A new entity has none, and is counted all the same; no defer is lost by who makes it."""
    assert not await is_there(connection)

    async def is_empty() -> bool:
        (counts,) = await door.namespace.counting.counts([QUEUE])
        return counts.total == 0

    # Until the leader has taken it, its ownership token is one of the inbox.
    await until(is_empty)
    async with open_door(endpoint, broker.management_url) as second:
        numbers = await asyncio.gather(deferred(door, "a", "b"), deferred(second, "c", "d"))
        assert await is_there(connection)
        found = await by_number(door, *numbers[0], *numbers[1])
        assert {each.record.body for each in found} == {b"a", b"b", b"c", b"d"}


async def test_a_queue_that_somebody_has_deleted_is_made_again(
    door: Door, connection: Connection
) -> None:
    """RabbitMQ does not say that it is gone, as a copy goes elsewhere: the bridge looks."""
    await deferred(door, "first")
    channel = await connection.channel()
    await channel.declarations.delete_queue("orders/$deferred")
    (number,) = await deferred(door, "second")
    (found,) = await by_number(door, number)
    assert found.record.body == b"second"


async def test_a_deferred_message_is_received_by_its_number_only(door: Door) -> None:
    """It keeps its number and its all, no receiver gets it, and it can be completed."""
    await door.namespace.send(door.path, [outgoing("a", colour="red")])
    client = door.client()
    (first,) = await client.receive()
    await settle(door, first, Defer())
    await door.send("b")
    (other,) = await client.receive()
    assert other.record.body == b"b"
    (found,) = await by_number(door, first.sequence_number)
    assert found.record.body == b"a"
    assert (found.record.properties.headers or {})["colour"] == text("red")
    assert (found.sequence_number, found.enqueued_ms) == (1, first.enqueued_ms)
    assert (first.delivery_count, found.delivery_count, found.is_deferred) == (0, 1, True)
    assert found.locked_until_ms is not None
    assert found.locked_until_ms > now_ms()
    await door.complete(other, found)
    with pytest.raises(MessageNotFound):
        await by_number(door, first.sequence_number)


async def test_deferred_messages_that_make_too_large_an_answer(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of them is locked or deleted; fewer of them are had."""
    monkeypatch.setattr("bridge.engine.deferral.replies.ASK_BYTES_MAX", 2_500)
    numbers = await deferred(door, "a", "b", "c")
    for mode in (PEEK_LOCK, ReceiveMode.RECEIVE_AND_DELETE):
        with pytest.raises(MessageSizeExceeded, match="Ask for fewer"):
            await by_number(door, *numbers, mode=mode)
    found = await by_number(door, *numbers[:2]) + await by_number(door, numbers[2])
    assert [each.sequence_number for each in found] == numbers
    await door.complete(*found)


async def test_one_unknown_number_fails_the_whole_request(door: Door) -> None:
    """Nothing is locked then; nor is a message that is not deferred, or is locked already."""
    first, second, third = await deferred(door, "a", "b", "c")
    await door.send("active")
    for numbers in ([third, 4], [5, 6, 7], [first, 99]):
        with pytest.raises(MessageNotFound):
            await by_number(door, *numbers)
    found = await by_number(door, third, first)
    assert [each.record.body for each in found] == [b"c", b"a"]
    with pytest.raises(MessageNotFound):
        await by_number(door, first, second)
    await door.complete(*found)
    await door.complete(*await by_number(door, second))


async def test_received_and_deleted_by_number(door: Door, confirming: Channel) -> None:
    """It is gone, and has no lock."""
    numbers = await deferred(door, "a", "b")
    found = await by_number(door, *numbers, mode=ReceiveMode.RECEIVE_AND_DELETE)
    assert [each.record.body for each in found] == [b"a", b"b"]
    assert [each.lock_token for each in found] == [None, None]
    with pytest.raises(MessageNotFound):
        await by_number(door, numbers[0])
    await door.namespace.close()
    assert await queued(confirming) == 0


async def test_abandoned_it_is_deferred_again_with_one_more_on_its_count(door: Door) -> None:
    """Changed properties are merged into it; no receiver gets it."""
    (number,) = await deferred(door, "a")
    (found,) = await by_number(door, number)
    await settle(door, found, Abandon(properties={"seen": text("yes")}))
    (last,) = await by_number(door, number)
    assert (found.delivery_count, last.delivery_count, last.sequence_number) == (1, 2, number)
    assert (last.record.properties.headers or {})["seen"] == text("yes")
    await door.send("active")
    (active,) = await door.client().receive()
    assert active.record.body == b"active"
    await door.complete(active, last)


async def test_each_deferral_counts_a_delivery(door: Door) -> None:
    """Also beyond MaxDeliveryCount, which the next failure is compared with.

    From 0 to 1 and 2: Azure's JavaScript live tests deferredMessage and batchReceiver. With and
    without changed properties.
    """
    (number,) = await deferred(door, "a")
    for count in range(1, QUEUE.max_delivery_count + 2):
        (found,) = await by_number(door, number)
        assert found.delivery_count == count
        properties = {"seen": text("yes")} if count == 2 else {}
        await settle(door, found, Defer(properties=properties))
        with pytest.raises(MessageLockLost):
            await settle(door, found, Complete())
    (found,) = await by_number(door, number)
    assert (found.record.properties.headers or {})["seen"] == text("yes")
    await settle(door, found, Abandon())
    (dead,) = await door.client(path=door.dead_letters).receive()
    reason = (dead.record.properties.headers or {})["DeadLetterReason"]
    assert (dead.sequence_number, reason) == (number, text("MaxDeliveryCountExceeded"))
    await door.complete(dead, path=door.dead_letters)


async def test_deferred_again_while_the_queue_is_full(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the place that it has; another one is refused."""
    (number,) = await deferred(door, "a")
    (found,) = await by_number(door, number)
    monkeypatch.setattr("bridge.topology.parts.DEFERRED_MAX", 1)
    await settle(door, found, Defer())
    (again,) = await by_number(door, number)
    assert again.delivery_count == 2
    with pytest.raises(QuotaExceeded):
        await deferred(door, "b")
    await door.complete(again)


async def test_its_lock_is_renewed_and_ends(door: Door) -> None:
    """When the lock ends it is deferred again, one more on its count."""
    (number,) = await deferred(door, "a")
    (found,) = await by_number(door, number)
    assert found.lock_token is not None
    (until_ms,) = await door.namespace.renew_locks(door.path, [found.lock_token])
    assert until_ms >= (found.locked_until_ms or 0)
    await until(lambda: door.namespace.counters.locks_expired == 1)
    assert now_ms() >= until_ms
    with pytest.raises(MessageLockLost):
        await settle(door, found, Complete())

    async def is_back() -> bool:
        try:
            (again,) = await by_number(door, number)
        except MessageNotFound:
            return False
        assert again.delivery_count == 2
        await door.complete(again)
        return True

    await until(is_back)


async def test_dead_lettered_it_has_its_reason(door: Door) -> None:
    """And too many failures dead-letter it as any other message."""
    first, second = await deferred(door, "a", "b")
    (found,) = await by_number(door, first)
    await settle(door, found, DeadLetter(reason="mine", description="d"))
    for _ in range(QUEUE.max_delivery_count - 1):  # the deferral was the first
        (found,) = await by_number(door, second)
        await settle(door, found, Abandon())
    dead = await door.client(path=door.dead_letters).receive(2)
    reasons = [(each.record.properties.headers or {})["DeadLetterReason"] for each in dead]
    assert reasons == [text("mine"), text("MaxDeliveryCountExceeded")]
    assert [each.sequence_number for each in dead] == [first, second]
    assert not any(each.is_deferred for each in dead)
    await door.complete(*dead, path=door.dead_letters)


async def test_a_dead_letter_is_deferred_beside_the_queue_s_own(door: Door) -> None:
    """Each is had from its own path only, and a dead letter cannot be dead-lettered again."""
    dead_letters = door.dead_letters
    (own,) = await deferred(door, "own")
    await door.send("dead")
    (message,) = await door.client().receive()
    await settle(door, message, DeadLetter(reason="mine"))
    (dead,) = await door.client(path=dead_letters).receive()
    await settle(door, dead, Defer(), dead_letters)
    with pytest.raises(MessageNotFound):
        await by_number(door, dead.sequence_number)
    with pytest.raises(MessageNotFound):
        await door.namespace.receive_deferred(dead_letters, [own], PEEK_LOCK)
    (found,) = await door.namespace.receive_deferred(
        dead_letters, [dead.sequence_number], PEEK_LOCK
    )
    assert (found.record.properties.headers or {})["DeadLetterReason"] == text("mine")
    with pytest.raises(NotAllowed):
        await settle(door, found, DeadLetter(), dead_letters)
    with pytest.raises(MessageLockLost):
        await settle(door, found, Complete())
    await settle(door, found, Complete(), dead_letters)
    await door.complete(*await by_number(door, own))


async def test_a_dead_letter_of_rabbitmq_keeps_its_reason(
    endpoint: Endpoint, broker: Broker
) -> None:
    """RabbitMQ's own word for why it dead-lettered a message does not survive a publish."""
    queue = model.Queue(name="orders", dead_lettering_on_message_expiration=True)
    async with open_door(endpoint, broker.management_url, queue) as door:
        await door.namespace.send(door.path, [outgoing("a", ttl_ms=1)])
        client = door.client(path=door.dead_letters)
        for disposition in (Abandon(properties={"seen": text("yes")}), Defer()):
            (dead,) = await client.receive()
            await settle(door, dead, disposition, door.dead_letters)
        (found,) = await door.namespace.receive_deferred(
            door.dead_letters, [dead.sequence_number], PEEK_LOCK
        )
        table = found.record.properties.headers or {}
        assert table["DeadLetterReason"] == text("TTLExpiredException")
        await settle(door, found, Complete(), door.dead_letters)


async def test_a_deferred_message_does_not_expire(door: Door) -> None:
    """Documented so, against one remark: it is there past its time to live."""
    await door.namespace.send(door.path, [outgoing("a", ttl_ms=1_500)])
    (message,) = await door.client().receive()
    await settle(door, message, Defer())
    await until(lambda: now_ms() > message.enqueued_ms + 2_000)
    (found,) = await by_number(door, 1)
    assert found.time_to_live_ms == 1_500
    await door.complete(found)


async def test_what_is_deferred_outlives_the_bridge(endpoint: Endpoint, broker: Broker) -> None:
    """Another bridge has the deferred messages, also those that were locked."""
    async with open_door(endpoint, broker.management_url, QUEUE) as first:
        numbers = await deferred(first, "a", "b")
        await by_number(first, numbers[0])
    async with open_door(endpoint, broker.management_url, QUEUE) as second:
        found = await by_number(second, *numbers)
        assert [each.record.body for each in found] == [b"a", b"b"]
        await second.complete(*found)


async def test_two_bridges_share_what_is_deferred(endpoint: Endpoint, broker: Broker) -> None:
    """Each can receive, settle and renew them; after the end of one the other has all."""
    async with open_door(endpoint, broker.management_url, QUEUE) as first:
        numbers = await deferred(first, "a", "b", "c", "d")
        (held,) = await by_number(first, numbers[0])
        async with open_door(endpoint, broker.management_url, QUEUE, with_sidecar=False) as second:
            (found,) = await by_number(second, numbers[1])
            assert (found.record.body, found.sequence_number) == (b"b", numbers[1])
            assert found.is_deferred
            assert found.lock_token is not None
            (until_ms,) = await second.namespace.renew_locks(second.path, [found.lock_token])
            assert until_ms >= (found.locked_until_ms or 0)
            await settle(second, found, Defer(properties={"seen": text("yes")}))
            (again,) = await by_number(second, numbers[1], mode=ReceiveMode.RECEIVE_AND_DELETE)
            assert (again.record.properties.headers or {})["seen"] == text("yes")
            await second.send("e")
            (late,) = await second.client().receive()
            await settle(second, late, Defer())
            await first.namespace.close()
            found_all = await by_number(second, numbers[0], *numbers[2:], late.sequence_number)
            assert [each.record.body for each in found_all] == [b"a", b"c", b"d", b"e"]
            with pytest.raises(MessageLockLost):
                await settle(second, held, Complete())
            await second.complete(*found_all)


async def test_bodies_beyond_the_room_are_read_again(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many large deferred messages do not fill the bridge's memory, and each is still had."""
    monkeypatch.setattr("bridge.engine.deferral.entities.BODIES_BYTES_MAX", 2_500)
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        bodies = [str(number) * 200 for number in range(8)]
        numbers = await deferred(door, *bodies)
        for some in (numbers[5:], numbers[:1], numbers[1:5]):
            found = await by_number(door, *some)
            assert [each.record.body.decode() for each in found] == [
                bodies[number - 1] for number in some
            ]
            for each in found[1:]:
                await settle(door, each, Defer())
            await door.complete(found[0])
        rest = [number for number in numbers if number not in (numbers[5], numbers[0], numbers[1])]
        await door.complete(*await by_number(door, *rest))


async def test_nobody_holds_what_nobody_asks_for(
    endpoint: Endpoint, broker: Broker, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while without asks and locks it is RabbitMQ's alone; the next ask finds it."""
    monkeypatch.setattr("bridge.engine.deferral.queue.IDLE_S", 0.5)
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        first, second = await deferred(door, "a", "b")
        (held,) = await by_number(door, first)
        assert await queued(confirming) == 0
        await door.complete(held)

        async def is_let_go() -> bool:
            return await queued(confirming) == 1

        await until(is_let_go)
        (found,) = await by_number(door, second)
        assert found.delivery_count == 1
        await door.complete(found)


@pytest.mark.long
async def test_what_leaves_is_held_until_its_new_place_has_it(
    endpoint: Endpoint,
    broker: Broker,
    vhost: str,
    confirming: Channel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next owner would make the misplaced message a dead letter once more."""
    monkeypatch.setattr("bridge.engine.deferral.queue.IDLE_S", 0.5)
    process = f"'{vhost}_{names.inbox('orders')}'"  # from there it becomes a dead letter
    suspend, resume = (f"sys:{what}(whereis({process}))." for what in ("suspend", "resume"))
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        (number,) = await deferred(door, "a")
        await asyncio.to_thread(broker.node.rabbitmqctl, "eval", suspend)
        await confirming.publisher.publish_confirmed("", "orders/$deferred", b"\0\0", b"stray")
        await door.complete(*await by_number(door, number))
        departure = door.namespace._departure
        assert not departure.is_idle
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        await until(lambda: loop.time() > asked_s + 3)
        assert await queued(confirming) == 0
        await asyncio.to_thread(broker.node.rabbitmqctl, "eval", resume)
        await until(lambda: departure.is_idle)
        assert [each.record.body for each in await dead(door, 1)] == [b"stray"]
        (counts,) = await door.namespace.counting.counts([QUEUE])
        assert (counts.dead_letter, counts.deferred) == (1, 0)


async def dead(door: Door, count: int) -> list[Received]:
    """Receive dead letters."""
    return await door.client(path=door.dead_letters).receive(count)


async def test_of_two_copies_the_later_one_counts(door: Door, confirming: Channel) -> None:
    """A bridge that died between publish and ack has left both; one is dropped."""
    (number,) = await deferred(door, "a")
    arrived: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
    await confirming.consumers.consume("orders/$deferred", arrived.set_result)
    copy = await arrived
    confirming.publisher.publish("", "orders/$deferred", copy.properties, b"later")
    await confirming.close()
    (found,) = await by_number(door, number)
    assert found.record.body == b"later"
    assert door.namespace.counters.second_copies == 1
    await door.complete(found)
    with pytest.raises(MessageNotFound):
        await by_number(door, number)


async def test_two_messages_with_one_number_are_had_one_after_the_other(
    door: Door, confirming: Channel
) -> None:
    """A failure of RabbitMQ and the sequencer together may leave such; neither is a copy."""
    (number,) = await deferred(door, "a")
    arrived: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
    await confirming.consumers.consume("orders/$deferred", arrived.set_result)
    first = await arrived
    properties = Properties.decode(first.properties)
    assert properties.headers is not None
    properties.headers[headers.IDENTITY] = ("x", bytes(range(20)))
    confirming.publisher.publish("", "orders/$deferred", properties.encode(), b"b")
    await confirming.close()

    bodies = []
    for _ in range(2):
        (found,) = await by_number(door, number)
        bodies.append(found.record.body)
        await door.complete(found)

    assert sorted(bodies) == [b"a", b"b"]
    assert door.namespace.counters.second_copies == 0
    with pytest.raises(MessageNotFound):
        await by_number(door, number)


async def test_a_queue_that_was_deleted_is_made_again(door: Door, confirming: Channel) -> None:
    """Its deferred messages are gone with it; those deferred later are found."""
    first, second = await deferred(door, "a", "b")
    await by_number(door, first)
    await confirming.declarations.delete_queue("orders/$deferred")

    async def is_made() -> bool:
        try:
            await by_number(door, second)
        except ServiceBusError as error:
            return isinstance(error, MessageNotFound)
        return False

    await until(is_made)
    (third,) = await deferred(door, "c")
    await door.complete(*await by_number(door, third))


async def put_deferred(confirming: Channel, count: int) -> None:
    """Store so many deferred messages, numbered from 1, each with its number as body."""
    await confirming.declarations.declare_queue(parts.deferred_queue(QUEUE.path))
    confirms = []
    for number in range(1, count + 1):
        table = {
            headers.SEQUENCE_NUMBER: long(number),
            headers.ENQUEUED_TIME: long(1),
            headers.DEFERRED: text(""),
            headers.DELIVERED: long(0),
        }
        properties = Properties(headers=table, delivery_mode=2).encode()
        publish = confirming.publisher.publish_confirmed
        confirms.append(publish("", "orders/$deferred", properties, b"%d" % number))
    await asyncio.gather(*confirms)


async def test_more_deferred_messages_than_a_quorum_queue_delivers_unasked(
    door: Door, confirming: Channel
) -> None:
    """Without a prefetch RabbitMQ delivers 2,000: the last of 5,000 is found all the same."""
    await put_deferred(confirming, 5_000)
    found = await by_number(door, 5_000, 1, 2_500)
    assert [each.record.body for each in found] == [b"5000", b"1", b"2500"]
    await door.complete(*found)


async def test_an_ask_that_comes_back_before_the_messages_that_its_owner_held(
    door: Door, confirming: Channel
) -> None:
    """An owner dies with an ask: 4.0 returns it among the messages, and each is found all the same.

    The bridge stands by for some time then, as long as nobody else asks.
    """
    count = 300
    await put_deferred(confirming, count)
    held: list[Delivery] = []
    await confirming.consumers.qos(2 * count)
    await confirming.consumers.consume("orders/$deferred", held.append)
    await until(lambda: len(held) == count)
    asking = asyncio.create_task(by_number(door, *range(1, count + 1)))
    await until(lambda: len(held) == count + 1)
    stands_by_s = asyncio.get_running_loop().time()
    await until(lambda: asyncio.get_running_loop().time() > stands_by_s + 1.5)
    confirming.abandon()
    found = await asking
    assert [each.sequence_number for each in found] == list(range(1, count + 1))
    await door.complete(*found)


async def test_a_full_queue_refuses_a_deferral_and_still_gives_what_it_has(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One too many stays locked where it was; the others are found."""
    monkeypatch.setattr("bridge.topology.parts.DEFERRED_MAX", 3)
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await door.send(*(str(number) for number in range(20)))
        messages = await door.client().receive(20)
        refused = []
        for each in messages:
            try:
                await settle(door, each, Defer())
            except QuotaExceeded:
                refused.append(each)
        assert len(refused) > 10
        kept = [each.sequence_number for each in messages if each not in refused]
        found = await by_number(door, *kept)
        with pytest.raises(QuotaExceeded):
            await settle(door, refused[0], Defer())
        await door.complete(*found, *refused)
