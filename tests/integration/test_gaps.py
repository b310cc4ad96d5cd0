"""Gaps in an entity's numbers on a real RabbitMQ: peeks, counts and successors leap over them."""

from __future__ import annotations

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import ReceiveMode
from bridge.model import entity as model
from bridge.wire.gaps import Gap
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

QUEUE = model.Queue(name="orders")


async def skip(door: Door, count: int, last: int) -> None:
    """Pass over so many numbers, when this one is given."""
    await until(lambda: len(door.sidecar.leading) == 1)
    (leader,) = door.sidecar.leading
    await until(lambda: leader.sequencer.memory.counters[0] == last)
    await leader.write(leader.sequencer.skip([Gap(last + 1, last + count)]))


async def peeked(door: Door, start: int = 0, count: int = 250) -> list[int]:
    """Return the numbers of a page."""
    return [each.sequence_number for each in await door.namespace.peek(door.path, start, count)]


@pytest.mark.parametrize("width", [1, 1_000, 2**40])
async def test_peeks_leap_over_gaps(endpoint: Endpoint, broker: Broker, width: int) -> None:
    """From any number on, before and after messages have left, and by another leader's memory."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        expected, last = list[int](), 0
        for _ in range(5):
            await skip(door, width, last)
            await door.send("a", "b")
            last += width + 2
            expected += [last - 1, last]
        await until(lambda: _has(door, expected))
        for number in expected:
            assert await peeked(door, number, 1) == [number]
            assert (
                await peeked(door, number + 1, 1)
                == [each for each in expected if each > number][:1]
            )
        client = door.client()
        await door.complete(*await client.receive(3))
        await client.receiver.close()
        assert await peeked(door) == expected[3:]
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await skip(door, width, last)
        await door.send("c")
        expected.append(last + width + 1)
        await until(lambda: _has(door, expected[3:]))


async def _has(door: Door, numbers: list[int]) -> bool:
    return await peeked(door) == numbers


async def test_what_nobody_told_of_is_found_by_counts_on_both_sides_of_a_gap(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """A native consumer has taken messages before the first peek."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await skip(door, 2**40, 0)
        await door.send(*"abc")
        await skip(door, 2**40, 2**40 + 3)
        await door.send(*"def")
        first, second = 2**40 + 1, 2**41 + 4
        await until(lambda: _stored(confirming, 6))
        for _ in range(4):
            await taken(confirming)
        await until(lambda: _stored(confirming, 2))
        numbers = [*range(first, first + 3), *range(second, second + 3)]
        await until(lambda: _has(door, numbers[4:]))
        await door.send("g")
        await until(lambda: _has(door, [*numbers[4:], second + 3]))


async def taken(channel: Channel) -> None:
    """Take a queue's first message as a native consumer."""
    got = await channel.consumers.get("orders")
    assert got is not None
    channel.consumers.ack(got.tag)


async def _stored(channel: Channel, count: int) -> bool:
    state = await channel.declarations.declare_queue("orders", passive=True)
    return state.messages == count


async def test_a_page_of_many_small_gaps_is_read_at_once(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Wider ones than those that a scan reads on over, one before each message."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        expected = []
        for number in range(60):
            await skip(door, 1_000, number * 1_001)
            await door.namespace.send(door.path, [outgoing(str(number))])
            expected.append((number + 1) * 1_001)
        await until(lambda: _has(door, expected))
        client = door.client(ReceiveMode.RECEIVE_AND_DELETE)
        await client.receive(30)
        await client.receiver.close()
        await until(lambda: _has(door, expected[30:]))


async def test_the_last_message_is_found_behind_a_small_gap(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Entries without a number stand behind it, as a gap's many numbers have one entry."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await door.send("a")
        await skip(door, 50, 1)
        await door.send("b")
        await until(lambda: _has(door, [1, 52]))
        (leader,) = door.sidecar.leading
        for _ in range(3):
            await leader.write(leader.sequencer.journal.note_uses(leader.sequencer.memory))
        assert await peeked(door) == [1, 52]
        assert await peeked(door, 3) == [52]
