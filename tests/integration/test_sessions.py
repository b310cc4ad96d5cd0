"""Sessions through the engine of one bridge, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Abandon, Complete, DeadLetter, Defer, ReceiveMode, Release
from bridge.engine.clock import now_ms
from bridge.engine.sessions import owner, shard_channels
from bridge.machine.sessions import ages
from bridge.model import entity as model
from bridge.model.errors import (
    MessageLockLost,
    MessageNotFound,
    MessageSizeExceeded,
    NotAllowed,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.shards import shard_of
from bridge.wire import headers
from bridge.wire.basic import Properties, Table, python_value, text
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.session_door import PATH, SessionClient, bodies, send

QUEUE = model.Queue(
    name="orders",
    lock_duration_ms=5_000,
    max_delivery_count=3,
    requires_session=True,
    dead_lettering_on_message_expiration=True,
)
PLAIN = model.Queue(name="plain")
DEAD = EntityPath("orders", SubQueue.DEAD_LETTER)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with a queue that requires sessions, and one that does not."""
    async with open_door(endpoint, broker.management_url, QUEUE, PLAIN) as opened:
        yield opened


async def accept(door: Door, session_id: str | None = None, **options: object) -> SessionClient:
    """Accept a session."""
    return await SessionClient(door).accept(session_id, **options)  # type: ignore[arg-type]


def waiting(door: Door) -> int:
    """How many receivers wait for the next session, in every shard."""
    owners = door.namespace._sessions.owners.all
    return min((len(each.messages.machine._supply.receivers) for each in owners), default=0)


async def test_a_session_has_its_messages_in_order_and_no_others(door: Door) -> None:
    """And each receiver has one; what is completed is gone."""
    for number in range(20):
        await send(door, "ab"[number % 2], str(number))
    first, second = await accept(door, "a"), await accept(door)
    assert second.receiver.session_id == "b"
    of_a = await first.receive(10)
    of_b = await second.receive(10)
    assert bodies(of_a) == [str(number) for number in range(0, 20, 2)]
    assert bodies(of_b) == [str(number) for number in range(1, 20, 2)]
    assert [each.delivery_count for each in of_a] == [0] * 10
    for each in of_a:
        await first.settle(each, Complete())
    assert await door.namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=9) == ["b"]


async def test_a_session_is_one_receivers(door: Door) -> None:
    """Another is refused, by name; a next one waits until its time is over."""
    await send(door, "a", "1")
    held = await accept(door, "a")
    with pytest.raises(SessionCannotBeLocked):
        await accept(door, "a")
    with pytest.raises(OperationTimeout):
        await accept(door, timeout_s=0.2)
    await held.close()
    again = await accept(door, timeout_s=120)
    assert again.receiver.session_id == "a"


async def test_who_waits_has_the_next_session_as_soon_as_it_is_there(door: Door) -> None:
    """First come, first served; and who has given up has none."""
    early = asyncio.create_task(accept(door))
    await until(lambda: waiting(door) == 1)
    given_up = asyncio.create_task(accept(door))
    late = asyncio.create_task(accept(door))
    await until(lambda: waiting(door) == 3)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await send(door, "x", "1")
    assert (await early).receiver.session_id == "x"
    await send(door, "y", "2")
    assert (await late).receiver.session_id == "y"


async def test_an_abandoned_message_comes_again_before_the_next(door: Door) -> None:
    """One more on its count, with what was changed; the last time it is a dead letter."""
    await send(door, "a", "1", "2")
    client = await accept(door, "a")
    (message,) = await client.receive()
    await client.settle(message, Abandon())
    (message,) = await client.receive()
    assert (message.record.body, message.delivery_count) == (b"1", 1)
    await client.settle(message, Abandon(properties={"why": text("again")}))
    (message,) = await client.receive()
    assert (message.record.body, message.delivery_count) == (b"1", 2)
    assert python_value((message.record.properties.headers or {})["why"]) == "again"
    await client.settle(message, Abandon())
    (message,) = await client.receive()
    assert (message.record.body, message.delivery_count) == (b"2", 0)
    (dead,) = await door.client(path=DEAD).receive()
    assert dead.record.body == b"1"
    table = dead.record.properties.headers or {}
    assert python_value(table[headers.DEAD_LETTER_REASON]) == "MaxDeliveryCountExceeded"


@pytest.mark.parametrize("ends_by", ["abandon", "lock"])
async def test_a_dead_letter_of_a_session_counts_all_its_failed_deliveries(
    door: Door, ends_by: str
) -> None:
    """Its last delivery, too, as a message without a session does."""
    await send(door, "a", "1")
    client = await accept(door, "a")
    for _ in range(QUEUE.max_delivery_count - 1):
        (message,) = await client.receive()
        await client.settle(message, Abandon())
    (message,) = await client.receive()
    if ends_by == "abandon":
        await client.settle(message, Abandon())
    (dead,) = await door.client(path=DEAD).receive()
    assert (dead.record.body, dead.delivery_count) == (b"1", QUEUE.max_delivery_count)


async def test_a_session_that_is_closed_counts_nothing(door: Door) -> None:
    """The next receiver gets the delivered and unsettled messages, in order."""
    await send(door, "a", "1", "2", "3")
    client = await accept(door, "a")
    message, _, third = await client.receive(3)
    await client.settle(message, Complete())
    await client.close()
    with pytest.raises(MessageLockLost):
        await client.settle(third, Complete())
    again = await accept(door, "a")
    received = await again.receive(2)
    assert bodies(received) == ["2", "3"]
    assert [each.delivery_count for each in received] == [0, 0]


async def test_a_session_lock_that_ends_counts(door: Door) -> None:
    """Its receiver is told; nothing can be settled under it; what it had comes again, in order."""
    await send(door, "a", "1", "2", "3")
    client = await accept(door, "a")
    message, _ = await client.receive(2)
    assert isinstance(await client.wait_for_loss(), SessionLockLost)
    assert now_ms() >= client.receiver.locked_until_ms
    with pytest.raises(MessageLockLost):
        await client.settle(message, Complete())
    with pytest.raises(SessionLockLost):
        await door.namespace.renew_session_lock(PATH, "a")
    with pytest.raises(SessionLockLost):
        await door.namespace.session_state(PATH, "a")
    again = await accept(door)
    received = await again.receive(3)
    assert bodies(received) == ["1", "2", "3"]
    assert [each.delivery_count for each in received] == [1, 1, 0]


async def test_a_renewed_lock_holds(door: Door) -> None:
    """For its full duration from then on, with the locks of its messages."""
    await send(door, "a", "1")
    client = await accept(door, "a")
    (message,) = await client.receive()
    first_ms = client.receiver.locked_until_ms
    await asyncio.sleep(3)
    until_ms = await door.namespace.renew_session_lock(PATH, "a")
    assert until_ms >= first_ms + 2_900
    assert client.receiver.locked_until_ms == until_ms
    await asyncio.sleep(3)
    await client.settle(message, Complete())
    assert not client.lost


async def test_a_shorter_lock_duration_ends_no_lock_before_its_sessions(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Messages received after the change and completed while the session is held are gone."""
    longer = replace(QUEUE, lock_duration_ms=60_000)
    async with open_door(endpoint, broker.management_url, longer) as door:
        await send(door, "a", "1", "2")
        client = await accept(door, "a")
        await door.namespace.apply(model.Namespace(queues=(QUEUE,)))
        first, _ = await client.receive(2)
        end_ms = now_ms() + QUEUE.lock_duration_ms
        await until(lambda: now_ms() > end_ms)
        await client.settle(first, Complete())
        await client.close()
        client = await accept(door, "a")
        (message,) = await client.receive()
        assert (message.record.body, message.delivery_count) == (b"2", 0)


async def test_a_released_message_is_available_uncounted(door: Door) -> None:
    """And drained credit brings nothing."""
    await send(door, "a", "1", "2")
    client = await accept(door, "a")
    first, second = await client.receive(2)
    await client.settle(second, Release())
    await client.settle(first, Release())
    received = await client.receive(2)
    assert bodies(received) == ["1", "2"]
    client.receiver.add_credit(5)
    await client.receiver.drain()
    await send(door, "a", "3")
    await until(lambda: "3 messages" in repr(door.namespace._sessions))
    assert not client.received


async def test_a_message_is_dead_lettered_out_of_a_session(door: Door) -> None:
    """The dead-letter queue is read plainly."""
    await send(door, "a", "1", "2")
    client = await accept(door, "a")
    (message,) = await client.receive()
    await client.settle(message, DeadLetter(reason="bad"))
    assert bodies(await client.receive()) == ["2"]
    (dead,) = await door.client(path=DEAD).receive()
    table = dead.record.properties.headers or {}
    assert python_value(table[headers.DEAD_LETTER_REASON]) == "bad"
    assert python_value(table[headers.SESSION_ID]) == "a"


async def test_a_message_is_deferred_in_a_session(door: Door) -> None:
    """It is had by its number, one more on its count, under its session's lock alone."""
    await send(door, "a", "1", "2")
    client, other = await accept(door, "a"), await accept(door, "b")
    (message,) = await client.receive()
    await client.settle(message, Defer())
    numbers = [message.sequence_number]
    assert bodies(await client.receive()) == ["2"]
    receive = door.namespace.receive_deferred
    with pytest.raises(MessageNotFound):
        await receive(PATH, numbers, ReceiveMode.PEEK_LOCK, "b")
    (again,) = await receive(PATH, numbers, ReceiveMode.PEEK_LOCK, "a")
    assert (again.record.body, message.delivery_count, again.delivery_count) == (b"1", 0, 1)
    await client.settle(again, Complete())
    await other.close()
    with pytest.raises(SessionLockLost):
        await receive(PATH, numbers, ReceiveMode.PEEK_LOCK, "b")


async def test_an_empty_session_can_be_held_and_gets_what_is_sent(door: Door) -> None:
    """By name."""
    client = await accept(door, "later")
    client.receiver.add_credit(1)
    await send(door, "later", "1")
    assert bodies(await client.wait()) == ["1"]


async def test_a_sessions_state_is_kept_until_it_is_cleared(door: Door) -> None:
    """Also without messages and without a receiver; 256 KB at most."""
    namespace = door.namespace
    client = await accept(door, "a")
    assert await namespace.session_state(PATH, "a") is None
    await namespace.set_session_state(PATH, "a", b"first")
    begun_ms = now_ms()
    await namespace.set_session_state(PATH, "a", b"x" * (256 << 10))
    with pytest.raises(MessageSizeExceeded):
        await namespace.set_session_state(PATH, "a", b"x" * (256 << 10) + b"y")
    assert await namespace.session_state(PATH, "a") == b"x" * (256 << 10)
    listed = await namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=10)
    assert listed == ["a"]
    later = await namespace.list_sessions(PATH, updated_after_ms=begun_ms - 1, skip=0, top=10)
    assert later == ["a"]
    assert not await namespace.list_sessions(
        PATH, updated_after_ms=now_ms() + 1_000, skip=0, top=10
    )
    await client.close()
    with pytest.raises(SessionLockLost):
        await namespace.set_session_state(PATH, "a", b"other")
    again = await accept(door, "a")
    await namespace.set_session_state(PATH, "a", None)
    assert await namespace.session_state(PATH, "a") is None
    await again.close()
    assert not await namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=10)


async def test_received_and_deleted_is_gone_when_it_is_delivered(door: Door) -> None:
    """Without a lock."""
    await send(door, "a", "1", "2")
    client = await accept(door, "a", mode=ReceiveMode.RECEIVE_AND_DELETE)
    received = await client.receive(2)
    assert bodies(received) == ["1", "2"]
    assert received[0].lock_token is None
    await client.close()
    with pytest.raises(OperationTimeout):
        await accept(door, timeout_s=0.2)


async def test_an_expired_message_is_delivered_to_nobody(door: Door) -> None:
    """It is a dead letter; what is behind it comes."""
    await send(door, "a", "1", ttl_ms=300)
    await send(door, "a", "2")
    await until(lambda: _has_been_there(door, "2", for_ms=300))  # so has the one before it
    client = await accept(door, "a")
    assert bodies(await client.receive()) == ["2"]
    (dead,) = await door.client(path=DEAD).receive()
    assert dead.record.body == b"1"


async def _has_been_there(door: Door, body: str, *, for_ms: int) -> bool:
    """Whether a message has its number, and has had it for so long."""
    there = await door.namespace.peek(PATH, 1, 10)
    found = [each for each in there if bodies([each]) == [body]]
    return bool(found) and now_ms() - found[0].enqueued_ms > for_ms


async def test_a_message_without_a_session_is_a_dead_letter(
    door: Door, confirming: Channel
) -> None:
    """A native publisher may send one to the exchange."""
    await accept(door, "a")
    properties = Properties(delivery_mode=2).encode()
    await confirming.publisher.publish_confirmed("orders", "", properties, b"lost")
    (dead,) = await door.client(path=DEAD).receive()
    table = dead.record.properties.headers or {}
    assert python_value(table[headers.DEAD_LETTER_REASON]) == "Session ID is null."


async def test_a_native_session_id_that_is_no_text_stops_nobody(
    door: Door, confirming: Channel
) -> None:
    """It reads as clients are shown it, when it is given, listed and peeked."""
    table: Table = {headers.SESSION_ID: ("S", b"Z\xfcrich")}
    properties = Properties(headers=table, delivery_mode=2).encode()
    await confirming.publisher.publish_confirmed("orders", "", properties, b"native")
    await send(door, "a", "1")
    ids = ["a", "Z\ufffdrich"]
    clients = [await accept(door) for _ in ids]
    assert sorted(client.receiver.session_id for client in clients) == sorted(ids)
    received = [(await client.receive())[0] for client in clients]
    assert sorted(bodies(received)) == ["1", "native"]
    listed = await door.namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=9)
    assert listed == sorted(ids)
    assert bodies(await door.namespace.peek(PATH, 1, 9, ids[1])) == ["native"]


async def test_sessions_are_accepted_where_they_are_required(door: Door) -> None:
    """And a plain receiver has none of their messages."""
    with pytest.raises(NotAllowed):
        await SessionClient(door, EntityPath("plain")).accept("a")
    with pytest.raises(NotAllowed):
        await SessionClient(door, DEAD).accept("a")
    with pytest.raises(NotAllowed):
        door.client()
    with pytest.raises(NotAllowed):
        await door.namespace.send(PATH, [outgoing("no session")])


async def test_a_native_consumer_is_named(door: Door, confirming: Channel) -> None:
    """It takes messages out of their sessions."""
    await confirming.consumers.consume(names.active_queue("orders"), lambda delivery: None)
    await accept(door, "a")
    await until(lambda: any("orders" in each for each in door.namespace.state.warnings))


async def test_bodies_that_are_not_in_memory_come_again(door: Door) -> None:
    """In order; RabbitMQ has them."""
    door.namespace._sessions.owners.budget.limit_bytes = 4_000
    await send(door, "a", *map(str, range(50)))
    client = await accept(door, "a")
    for start in range(0, 50, 10):
        received = await client.receive(10)
        assert bodies(received) == [str(start + number) for number in range(10)]
        for each in received:
            await client.settle(each, Complete())


async def test_more_is_held_than_a_channels_window(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, with more channels; and what is settled makes room on those that are there."""
    monkeypatch.setattr(shard_channels, "WINDOW", 10)
    held = await accept(door, "s1")
    held.receiver.add_credit(100)
    for number in range(100):
        await send(door, f"s{number % 4}", str(number))
    await until(lambda: door.namespace._sessions.held("orders") == 100)
    assert bodies(await held.wait(25)) == [str(number) for number in range(1, 100, 4)]
    for _ in range(3):
        client = await accept(door)
        received = await client.receive(25)
        first = int(client.receiver.session_id[1:])
        assert bodies(received) == [str(number) for number in range(first, 100, 4)]
        for each in received:
            await client.settle(each, Complete())
    await send(door, "s1", *map(str, range(100, 140)))
    assert bodies(await held.wait(40)) == [str(number) for number in range(100, 140)]


async def test_what_is_old_is_published_again_where_rabbitmq_keeps_its_log(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When enough has passed by; before 4.3 alone. The old ones are what they were, in order."""
    monkeypatch.setattr(owner, "SWEEP_S", 0.2)
    monkeypatch.setattr(ages, "STEP", 5)
    monkeypatch.setattr(ages, "GONE_MIN", 20)
    entity = door.namespace.directory.receivable(PATH)
    of_busy = shard_of(entity, "busy")
    names_ = (f"old {number}" for number in range(100))
    old = next(each for each in names_ if shard_of(entity, each) == of_busy)
    await send(door, old, "1", "2")
    busy = await accept(door, "busy")
    for number in range(40):
        await send(door, "busy", str(number))
        await busy.settle((await busy.receive())[0], Complete())
    keeps_log = not door.namespace.capabilities.compacts_logs

    def is_refreshed() -> bool:
        owners = door.namespace._sessions.owners.all
        return sum(each.arrivals.count for each in owners) == 40 + 2 + 2

    if keeps_log:
        await until(is_refreshed)
    else:
        await asyncio.sleep(0.5)
        assert not is_refreshed()
    client = await accept(door, old)
    received = await client.receive(2)
    assert bodies(received) == ["1", "2"]
    assert [each.delivery_count for each in received] == [0, 0]
    for each in received:
        await client.settle(each, Complete())


async def test_as_much_as_can_be_held_stops_nothing(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies come again, and what waits in RabbitMQ comes when something has left."""
    monkeypatch.setattr(shard_channels, "WINDOW", 10)
    monkeypatch.setattr(shard_channels, "WINDOWS_MAX", 2)
    door.namespace._sessions.owners.budget.limit_bytes = 4_000
    client = await accept(door, "a")
    await send(door, "a", *map(str, range(25)))
    await until(lambda: "20 messages" in repr(door.namespace._sessions))
    for start in range(0, 25, 5):
        received = await client.receive(5)
        assert bodies(received) == [str(start + number) for number in range(5)]
        for each in received:
            await client.settle(each, Complete())
