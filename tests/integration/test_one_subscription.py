"""Messages for one subscription of a topic alone, which the topic's leader may not know yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.message.envelopes import RelayedCopy
from bridge.model import entity as model
from bridge.model.name import EntityPath, short_id
from bridge.sidecar.leader import target_search
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire import headers, relay_source
from bridge.wire.basic import Properties
from bridge.wire.record import Record
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

TOPIC = EntityPath("events")
AUDIT = EntityPath("events/Subscriptions/audit")
OTHER = EntityPath("events/Subscriptions/other")
SOURCE = relay_source.digest_of("one.servicebus.windows.net/orders")


def copy_for(short: bytes, body: str, number: int) -> RelayedCopy:
    """A relay's copy for one subscription."""
    record = Record(Properties(message_id=body, headers={}, delivery_mode=2), body.encode())
    said = relay_source.say(SOURCE, number, 1_000, 0)
    return RelayedCopy(record=record, size_bytes=len(body), said=said, target=short)


@pytest_asyncio.fixture
async def doors(endpoint: Endpoint, broker: Broker) -> AsyncIterator[tuple[Door, Door]]:
    """A bridge that leads a topic with one subscription, and another one that hears of changes."""
    url = broker.management_url
    async with (
        open_door(endpoint, url, supervisor=Supervisor()) as leader,
        open_door(endpoint, url, with_sidecar=False) as maker,
    ):
        administration = maker.namespace.administration
        await administration.create(model.Topic(name="events"))
        await administration.create(model.Subscription(topic="events", name="other"))
        await until(lambda: leader.sidecar.leading)
        await until(lambda: leader.namespace.directory.find("events/subscriptions/other"))
        yield leader, maker


def deafen(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a bridge miss the notifications of changed definitions, as one that is lost."""
    monkeypatch.setattr(door.namespace._due, "wake_for", lambda path: None)


async def made(maker: Door) -> bytes:
    """Make the subscription, and return its short id."""
    subscription = model.Subscription(topic="events", name="audit")
    return short_id(incarnation_of(await maker.namespace.administration.create(subscription)))


async def test_a_subscription_that_its_leader_does_not_know_yet_gets_what_is_for_it_alone(
    doors: tuple[Door, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made this instant; what comes behind stays behind, and no other one gets it."""
    leader, maker = doors
    deafen(leader, monkeypatch)
    short = await made(maker)
    await maker.namespace.send(TOPIC, [copy_for(short, "once", 1)])
    await maker.namespace.send(TOPIC, [outgoing("behind")])
    audit = maker.client(path=AUDIT)
    received = await audit.receive(2)
    assert [each.record.body for each in received] == [b"once", b"behind"]
    other = maker.client(path=OTHER)
    assert [each.record.body for each in await other.receive(1)] == [b"behind"]


async def test_in_an_envelope_of_many_messages_too(
    doors: tuple[Door, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is numbered in parts."""
    leader, maker = doors
    deafen(leader, monkeypatch)
    short = await made(maker)
    count = 1_500
    copies = [copy_for(short, f"{number}", number) for number in range(1, count + 1)]
    await maker.namespace.send(TOPIC, copies)
    received = await maker.client(path=AUDIT).receive(count)
    assert [each.record.body for each in received] == [b"%d" % each for each in range(1, count + 1)]


async def test_what_was_published_past_the_front_exchange_comes_back_to_its_subscription(
    doors: tuple[Door, Door], monkeypatch: pytest.MonkeyPatch, confirming: Channel
) -> None:
    """By the same way: it is sent to be numbered, for its subscription alone."""
    leader, maker = doors
    deafen(leader, monkeypatch)
    await made(maker)
    audit = maker.client(path=AUDIT)
    await confirming.publisher.publish_confirmed("", names.active_queue(str(AUDIT)), b"\0\0", b"x")
    (received,) = await audit.receive()
    assert (received.record.body, received.sequence_number) == (b"x", 1)


async def test_what_is_for_a_deleted_subscription_goes_with_it_and_is_named(
    doors: tuple[Door, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two looks prove that it is gone; then the topic goes on."""
    monkeypatch.setattr(target_search, "ABSENT_S", 0.2)
    leader, maker = doors
    short = await made(maker)
    await maker.namespace.administration.delete(str(AUDIT))
    await maker.namespace.send(TOPIC, [copy_for(short, "gone", 1)])
    await maker.namespace.send(TOPIC, [copy_for(short, "gone, too", 2)])
    await maker.namespace.send(TOPIC, [outgoing("behind")])
    (received,) = await maker.client(path=OTHER).receive()
    assert received.record.body == b"behind"
    assert leader.sidecar.poison.counts["inbox"] == 1


async def test_while_the_definitions_cannot_be_read_nothing_is_numbered_and_health_says_why(
    doors: tuple[Door, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A term ends in order after a while: another bridge may know the subscription."""
    monkeypatch.setattr(target_search, "SEEK_S", 3.0)
    leader, maker = doors
    deafen(leader, monkeypatch)
    short = await made(maker)
    looked = asyncio.Event()
    fetch = leader.namespace.directory.fetch

    async def when_it_answers() -> None:
        await looked.wait()
        await fetch()

    monkeypatch.setattr(leader.namespace.directory, "fetch", when_it_answers)
    (term,) = leader.sidecar.leading
    await maker.namespace.send(TOPIC, [copy_for(short, "once", 1), outgoing("behind")])
    waits = leader.namespace._supervisor.waits
    await until(lambda: any(target_search.SEEKS in each for each in waits.sentences()))
    await until(lambda: term.over is not None)
    looked.set()
    received = await maker.client(path=AUDIT).receive(2)
    assert [each.record.body for each in received] == [b"once", b"behind"]
    tables = [each.record.properties.headers or {} for each in received]
    assert not any(headers.TARGET in each for each in tables)
