"""Forwarding on a real RabbitMQ: what an SDK can hardly bring about, and how fast it is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest_asyncio

from bridge.broker.connection.endpoint import parse_url
from bridge.engine.api import DeadLetter, Received, ReceiveMode
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.forwarded import hops_of
from tests.fixtures.broker import Broker
from tests.fixtures.dead import dead_queue
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

END = EntityPath("end")
SOURCE = EntityPath("source")
FAILS = EntityPath("fails")

QUEUES = (
    model.Queue(name="end"),
    model.Queue(name="source", forward_to="end"),
    model.Queue(name="fails", forward_dead_lettered_messages_to="end"),
    # What comes back to `fails` as the fourth hop, and fails again, has had its four hops.
    model.Queue(name="far", forward_to="farther"),
    model.Queue(name="farther", forward_to="farthest"),
    model.Queue(name="farthest", forward_to="last"),
    model.Queue(name="last", forward_to="fails"),
)


@pytest_asyncio.fixture
async def door(broker: Broker, vhost: str) -> AsyncIterator[Door]:
    """A bridge with queues that forward."""
    endpoint = parse_url(broker.url_of(vhost))
    async with open_door(endpoint, broker.management_url, *QUEUES) as opened:
        await until(lambda: len(opened.sidecar.leading) == len(QUEUES))
        yield opened


async def received(door: Door, path: EntityPath, count: int) -> list[Received]:
    """Receive and delete so many messages."""
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE, path)
    found = await client.receive(count)
    await client.receiver.close()
    return found


def bodies(found: list[Received]) -> list[str]:
    """Return the texts of messages."""
    return [each.record.body.decode() for each in found]


async def test_health_names_a_source_whose_target_rabbitmq_does_not_take(
    door: Door, broker: Broker, vhost: str
) -> None:
    """Its target's queue is dead; when that lives again all is forwarded, and nothing named."""
    waits = door.namespace._supervisor.waits
    async with dead_queue(broker, vhost, names.inbox("end")):
        await door.namespace.send(SOURCE, [outgoing("waits")])
        await until(lambda: any(each.startswith("'source' waits") for each in waits.sentences()))
    assert bodies(await received(door, END, 1)) == ["waits"]
    await until(lambda: not waits.sentences())


async def test_a_full_target_costs_its_messages_and_delays_its_dead_letters(door: Door) -> None:
    """A message is dead-lettered in its source, a dead letter waits there."""
    door.namespace.note_full("end")
    await door.namespace.send(SOURCE, [outgoing("lost")])
    (dead,) = await received(door, EntityPath("source", SubQueue.DEAD_LETTER), 1)
    table = dead.record.properties.headers or {}
    assert table[headers.DEAD_LETTER_REASON] == ("S", b"QuotaExceededException")
    await fail(door, "waits")
    (counts,) = await door.namespace.counting.counts([door.namespace.entity(FAILS)])
    assert (counts.dead_letter, counts.transfer_dead_letter) == (1, 0)
    assert door.namespace.counters.unforwardable == 1


async def fail(door: Door, *texts: str, hops: bool = False) -> None:
    """Dead-letter messages in the queue whose dead letters are forwarded."""
    await door.namespace.send(
        EntityPath("far") if hops else FAILS, [outgoing(each) for each in texts]
    )
    client = door.client(path=FAILS)
    for each in await client.receive(len(texts)):
        assert each.lock_token is not None
        await door.namespace.settle(FAILS, each.lock_token, DeadLetter(reason="R"))
    await client.receiver.close()


async def test_dead_letters_that_had_four_hops_stay_and_hold_up_nothing(door: Door) -> None:
    """They are dead letters of their queue, as RabbitMQ and counts say."""
    await fail(door, "far", "too", hops=True)
    await fail(door, "near")
    (found,) = await received(door, END, 1)
    table = found.record.properties.headers or {}
    assert (found.record.body, hops_of(table)) == (b"near", 1)
    assert table[headers.DEAD_LETTER_SOURCE] == ("S", b"fails")
    (counts,) = await door.namespace.counting.counts([door.namespace.entity(FAILS)])
    assert counts.dead_letter == 2


async def test_who_leads_no_more_forwards_what_is_at_hand_and_nothing_else(door: Door) -> None:
    """And goes on when it leads again."""
    forwarding = door.namespace.forwarding
    await door.namespace.send(SOURCE, [outgoing("a")])
    assert bodies(await received(door, END, 1)) == ["a"]
    await forwarding.leave("source")
    await door.namespace.send(SOURCE, [outgoing("b")])
    entity = door.namespace.entity(SOURCE)

    async def waits() -> bool:
        (counts,) = await door.namespace.counting.counts([entity])
        return (counts.transfer, counts.active) == (1, 0)

    await until(waits)
    forwarding.lead("Source")
    assert bodies(await received(door, END, 1)) == ["b"]


async def test_thousands_go_on_in_order(door: Door) -> None:
    """Also from behind what is waiting; prints the rate."""
    count = 3_000
    await door.namespace.forwarding.leave("source")
    texts = [str(number) for number in range(count)]
    for at in range(0, count, 500):
        await door.namespace.send(SOURCE, [outgoing(each) for each in texts[at : at + 500]])
    meters = door.sidecar.meters["end"]
    begun_s = time.monotonic()
    door.namespace.forwarding.lead("source")
    await until(lambda: meters.arrivals >= count)
    print(f"forwarded {count / (time.monotonic() - begun_s):.0f} messages/s")
    assert bodies(await received(door, END, count)) == texts
