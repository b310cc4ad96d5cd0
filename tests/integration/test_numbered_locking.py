"""Messages are locked by their numbers, wherever they stand; the others keep place and count."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

import pytest
import pytest_asyncio

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
from bridge.engine.numbered_locks import NumberedLocks
from bridge.engine.receiving import numbered_locking
from bridge.model import entity as model
from bridge.model.errors import MessageLockLost, NotAllowed, NotImplementedHere
from bridge.model.name import EntityPath
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

COUNT = 200
QUEUES = (
    model.Queue(name="orders", lock_duration_ms=300_000, max_delivery_count=2),
    model.Queue(name="sessions", requires_session=True),
    model.Queue(name="forwarded", forward_to="orders"),
)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge on a RabbitMQ that does not count what goes back."""
    if broker.version < (4, 3):
        pytest.skip("before 4.3 messages are not locked by number")
    async with open_door(endpoint, broker.management_url, *QUEUES) as opened:
        yield opened


async def send(door: Door, count: int = COUNT) -> None:
    """Send messages in few batches: their texts are their numbers."""
    texts = [str(number) for number in range(1, count + 1)]
    for at in range(0, count, 500):
        await door.namespace.send(door.path, [outgoing(each) for each in texts[at : at + 500]])


async def kill(door: Door, count: int = COUNT) -> None:
    """Send messages, and dead-letter them."""
    await send(door, count)
    received = await door.client().receive(count)
    await settle(door, received, DeadLetter(reason="bad"))


async def settle(
    door: Door,
    received: Iterable[Received],
    how: Abandon | Complete | DeadLetter | Defer | Release,
    path: EntityPath | None = None,
) -> None:
    """Settle messages in their order."""
    settling = [
        door.namespace.settle(path or door.path, each.lock_token, how)
        for each in received
        if each.lock_token is not None
    ]
    await asyncio.gather(*settling)


def numbers(received: Sequence[Received]) -> list[int]:
    """Return sequence numbers."""
    return [each.sequence_number for each in received]


async def all_of(door: Door, path: EntityPath, count: int) -> list[Received]:
    """Receive and delete so many messages; there are no more, and none was counted."""
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE, path)
    received = await client.receive(count)
    client.receiver.add_credit(1)
    await client.receiver.drain()
    assert client.received == []
    await client.receiver.close()
    assert {each.delivery_count for each in received} <= {0}
    return received


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead letters", "active messages"])
async def test_the_others_keep_their_places_and_counts(door: Door, is_dead: bool) -> None:
    """What was locked can be completed, and given back: behind what has gone back before."""
    await (kill if is_dead else send)(door)
    path = door.dead_letters if is_dead else door.path
    locked = await door.namespace.lock_messages(path, [150, 7, 999, 90, 7])
    assert numbers(locked.received) == [7, 90, 150]
    assert [each.record.body for each in locked.received] == [b"7", b"90", b"150"]
    assert (locked.missing, locked.unavailable, locked.unreached) == ([999], [], [])
    await settle(door, locked.received[:2], Complete(), path)
    await settle(door, locked.received[2:], Release(), path)
    left = [each for each in range(1, COUNT + 1) if each not in (7, 90, 150)] + [150]
    assert numbers(await all_of(door, path, len(left))) == left


async def test_receivers_miss_nothing_meanwhile(door: Door) -> None:
    """Each message comes to one of them, uncounted, while others are locked and given back."""
    await kill(door)
    path = door.dead_letters
    found: list[Received] = []

    async def receive() -> None:
        client = door.client(path=path)
        while len(found) < COUNT:
            client.receiver.add_credit(7)
            await client.receiver.drain()
            found.extend(client.received)
            await door.complete(*client.received, path=path)
            client.received.clear()
        await client.receiver.close()

    async def lock(wanted: list[int]) -> None:
        while len(found) < COUNT:
            locked = await door.namespace.lock_messages(path, wanted)
            await settle(door, locked.received, Release(), path)

    async with asyncio.timeout(120):
        await asyncio.gather(receive(), receive(), lock([40, 160, 199]), lock([1, 100]))
    assert Counter(numbers(found)) == Counter(range(1, COUNT + 1))
    assert {each.delivery_count for each in found} == {0}


async def test_two_bridges_that_lock_the_same_numbers_share_them(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """Each is locked at one of them; the other says that it is not to be had."""
    await kill(door)
    wanted = list(range(50, 150))
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as other:
        told: list[NumberedLocks] = await asyncio.gather(
            *(each.namespace.lock_messages(door.dead_letters, wanted) for each in (door, other))
        )
        locked = [number for each in told for number in numbers(each.received)]
        assert len(locked) == len(set(locked))
        for each in told:
            assert sorted([*numbers(each.received), *each.unavailable]) == wanted
            await settle(door, each.received, Release(), door.dead_letters)
        await until(lambda: not len(other.namespace._locks))
    again = await door.namespace.lock_messages(door.dead_letters, wanted)
    assert numbers(again.received) == wanted
    await settle(door, again.received, Release(), door.dead_letters)
    assert sorted(numbers(await all_of(door, door.dead_letters, COUNT))) == list(
        range(1, COUNT + 1)
    )


async def test_what_cannot_be_had_is_said_by_number(door: Door) -> None:
    """Locked by a receiver, deferred, or not there."""
    await send(door, 6)
    first, second, third = await door.client().receive(3)
    await settle(door, [second], Defer())
    await settle(door, [third], Complete())
    locked = await door.namespace.lock_messages(door.path, [1, 2, 3, 5])
    assert numbers(locked.received) == [5]
    assert (sorted(locked.unavailable), locked.missing) == ([1, 2], [3])
    await settle(door, [first], Release())
    assert numbers((await door.namespace.lock_messages(door.path, [1])).received) == [1]


async def test_what_stands_behind_too_many_is_said_by_number(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that stood before it goes back."""
    monkeypatch.setattr(numbered_locking, "DEAD_LETTERS_MAX", 20)
    await kill(door, 100)
    locked = await door.namespace.lock_messages(door.dead_letters, [3, 90, 999])
    assert numbers(locked.received) == [3]
    assert (locked.unreached, locked.unavailable, locked.missing) == ([90], [], [999])
    await settle(door, locked.received, Complete(), door.dead_letters)
    left = [each for each in range(1, 101) if each != 3]
    assert numbers(await all_of(door, door.dead_letters, 99)) == left


async def test_a_search_that_is_given_up_leaves_nothing_locked(door: Door) -> None:
    """At whatever instant its client goes away."""
    await kill(door)
    path = door.dead_letters
    for wait_s in (0.0, 0.001, 0.005, 0.01, 0.02, 0.05):
        locking = asyncio.ensure_future(door.namespace.lock_messages(path, [COUNT - 1]))
        await asyncio.wait([locking], timeout=wait_s)
        locking.cancel()
        with suppress(asyncio.CancelledError):
            await settle(door, (await locking).received, Release(), path)
    assert len(door.namespace._locks) == 0
    found = numbers(await all_of(door, path, COUNT))
    assert sorted(found) == list(range(1, COUNT + 1))
    found.remove(COUNT - 1)
    assert found == sorted(found)


async def test_a_search_whose_channel_ends_begins_again(door: Door) -> None:
    """RabbitMQ has taken back what was held; nothing is given twice."""
    await kill(door)
    path = door.dead_letters
    reader = door.namespace._receiving._reader(path, door.namespace.receive_entity(door.path))
    locking = asyncio.ensure_future(door.namespace.lock_messages(path, [5, COUNT, 999]))
    async with asyncio.timeout(120):
        while not reader.held:  # noqa: ASYNC110 - in 20 ms the search may be over
            await asyncio.sleep(0)
    assert not locking.done()
    reader._pool.give_up()
    locked = await locking
    assert numbers(locked.received) == [5, COUNT]
    assert (locked.missing, locked.unavailable, locked.unreached) == ([999], [], [])
    await settle(door, locked.received, Release(), path)
    assert sorted(numbers(await all_of(door, path, COUNT))) == list(range(1, COUNT + 1))


async def test_the_lock_is_one_as_any_other(door: Door) -> None:
    """It is renewed and lost; an abandon is counted, for an active message."""
    await send(door, 4)
    (found,) = (await door.namespace.lock_messages(door.path, [3])).received
    assert found.lock_token is not None
    (until_ms,) = await door.namespace.renew_locks(door.path, [found.lock_token])
    assert until_ms >= (found.locked_until_ms or 0)
    await settle(door, [found], Abandon())
    with pytest.raises(MessageLockLost):
        await door.namespace.settle(door.path, found.lock_token, Complete())
    (found,) = (await door.namespace.lock_messages(door.path, [3])).received
    assert found.delivery_count == 1


@pytest.mark.parametrize("name", ["sessions", "forwarded"])
async def test_entities_without_plain_receivers_are_refused(door: Door, name: str) -> None:
    """By name, whatever numbers are given."""
    with pytest.raises(NotAllowed):
        await door.namespace.lock_messages(EntityPath(name), [])


async def test_whether_it_can_be_done_is_told_by_name(endpoint: Endpoint, broker: Broker) -> None:
    """RabbitMQ before 4.3 would count a failed delivery of each that goes back."""
    async with open_door(endpoint, broker.management_url, *QUEUES) as door:
        asked = door.namespace.lock_messages(door.path, [])
        if broker.version < (4, 3):
            with pytest.raises(NotImplementedHere):
                await asked
        else:
            assert (await asked).received == ()
