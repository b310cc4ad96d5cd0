"""A subscription whose queue takes nothing stops no other, and misses nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Complete, Received, ReceiveMode
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.dead import dead_queue, silent_stream, start_queue, stop_queue
from tests.fixtures.waiting import until
from tests.integration.door import Client, Door, open_door, outgoing

pytestmark = pytest.mark.kills

EVENTS = EntityPath("events")
NAMES = ("audit", "billing", "brief")
TOPIC = model.Topic(
    name="events",
    subscriptions=(
        model.Subscription(topic="events", name="audit"),
        model.Subscription(topic="events", name="billing"),
        model.Subscription(
            topic="events",
            name="brief",
            default_message_time_to_live_ms=2_000,
            dead_lettering_on_message_expiration=True,
        ),
    ),
)
WITHIN_S = 120.0
"""Ten seconds until a subscription is left out, two to ask, and a new term on a busy machine."""


@pytest.fixture(scope="module")
def broker(own_broker: Broker) -> Broker:
    """No other test meets what these do to a RabbitMQ."""
    return own_broker


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with the topic."""
    async with open_door(endpoint, broker.management_url) as opened:
        await opened.namespace.apply(model.Namespace(topics=(TOPIC,)))
        await until(lambda: opened.sidecar.meters["events"].is_active)
        yield opened


def path(name: str, sub_queue: SubQueue = SubQueue.NONE) -> EntityPath:
    """The path of a subscription."""
    return EntityPath(f"events/subscriptions/{name}", sub_queue)


def is_named(door: Door, name: str) -> bool:
    """Whether the bridge says that a subscription is left out."""
    return any(each.name.lower() == path(name).entity for each in door.sidecar.silent)


async def publish(door: Door, first: int, last: int) -> None:
    """Send messages of these numbers, each accepted before the next."""
    for number in range(first, last + 1):
        await door.namespace.send(EVENTS, [outgoing(f"m{number}")])


async def take(door: Door, client: Client, name: str, count: int) -> list[tuple[str, int]]:
    """Receive and complete messages; return bodies and numbers, second copies among them once."""
    found: dict[int, str] = {}
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            (each,) = await client.receive()
            assert each.lock_token is not None
            await door.namespace.settle(path(name), each.lock_token, Complete())
            assert each.sequence_number not in found, "a bridge drops second copies"
            found[each.sequence_number] = each.record.body.decode()
    return [(body, number) for number, body in found.items()]


def numbered(first: int, last: int) -> list[tuple[str, int]]:
    """What `take` returns when nothing is missing and all is in order."""
    return [(f"m{number}", number) for number in range(first, last + 1)]


async def test_a_dead_subscription_is_left_out_named_and_caught_up_in_order(
    door: Door, broker: Broker, vhost: str
) -> None:
    """The others go on meanwhile; what comes after its return comes after what it missed."""
    billing = door.client(path=path("billing"))
    await publish(door, 1, 3)
    assert await take(door, billing, "billing", 3) == numbered(1, 3)
    async with dead_queue(broker, vhost, path("audit").entity):
        sending = asyncio.create_task(publish(door, 4, 300))
        assert await take(door, billing, "billing", 297) == numbered(4, 300)
        await sending
        await until(lambda: is_named(door, "audit"), within_s=WITHIN_S)
        await publish(door, 301, 320)
        assert await take(door, billing, "billing", 20) == numbered(301, 320)
        assert not is_named(door, "billing")
        assert not door.sidecar.reasons
    audit = door.client(path=path("audit"))
    sending = asyncio.create_task(publish(door, 321, 600))
    assert await take(door, audit, "audit", 600) == numbered(1, 600)
    await sending
    await until(lambda: not is_named(door, "audit"))
    assert await take(door, billing, "billing", 280) == numbered(321, 600)


async def test_who_takes_over_knows_what_a_subscription_has_missed(
    endpoint: Endpoint, door: Door, broker: Broker, vhost: str
) -> None:
    """The next leader is another bridge, and the queue comes back under that one."""
    audit = path("audit").entity
    await stop_queue(broker, vhost, audit)
    try:
        sending = asyncio.create_task(publish(door, 1, 40))
        billing = door.client(path=path("billing"))
        assert await take(door, billing, "billing", 40) == numbered(1, 40)
        await sending
        await until(lambda: is_named(door, "audit"), within_s=WITHIN_S)
        await door.namespace.close()
        await door.sidecar.stop()
        async with open_door(endpoint, broker.management_url) as second:
            await until(lambda: second.sidecar.meters["events"].is_active, within_s=WITHIN_S)
            await publish(second, 41, 60)
            others = second.client(path=path("billing"))
            assert await take(second, others, "billing", 20) == numbered(41, 60)
            assert is_named(second, "audit")
            await start_queue(broker, vhost, audit)
            late = second.client(path=path("audit"))
            assert await take(second, late, "audit", 60) == numbered(1, 60)
            await until(lambda: not is_named(second, "audit"))
            await publish(second, 61, 61)
            assert await take(second, late, "audit", 1) == numbered(61, 61)
    finally:
        await start_queue(broker, vhost, audit)


async def test_a_journal_that_says_nothing_has_not_ended(
    door: Door, broker: Broker, vhost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages that a subscription missed are still there when its journal answers again."""
    caplog.set_level(logging.INFO, "bridge.sidecar")

    def is_tried() -> bool:
        # The first attempt may have begun before the journal fell silent.
        waits = caplog.text.count("subscription.waits")
        return waits > 1 or "subscription.whole" in caplog.text

    def is_quiet() -> bool:
        # The term has written all that it has to, so nothing of its own waits for the journal.
        (leader,) = door.sidecar.leading or (None,)
        return (
            leader is not None
            and not leader.sequencer.memory.has_inherited
            and not leader.in_flight.open
        )

    audit = path("audit").entity
    await stop_queue(broker, vhost, audit)
    try:
        await publish(door, 1, 40)
        await until(lambda: is_named(door, "audit"), within_s=WITHIN_S)
        await until(is_quiet, within_s=WITHIN_S)
        async with silent_stream(broker, vhost, names.journal("events")):
            caplog.clear()
            await start_queue(broker, vhost, audit)
            await until(is_tried, within_s=WITHIN_S)
    finally:
        await start_queue(broker, vhost, audit)
    assert await take(door, door.client(path=path("audit")), "audit", 40) == numbered(1, 40)
    await until(lambda: not is_named(door, "audit"))


async def test_what_expired_while_a_subscription_was_left_out_is_a_dead_letter(
    door: Door, broker: Broker, vhost: str
) -> None:
    """Its time runs from when it was enqueued, not from when the queue came back."""
    async with dead_queue(broker, vhost, path("brief").entity):
        await publish(door, 1, 3)
        await until(lambda: is_named(door, "brief"), within_s=WITHIN_S)
        await asyncio.sleep(2)
    dead = door.client(path=path("brief", SubQueue.DEAD_LETTER))
    found: list[Received] = await dead.receive(3)
    assert [each.sequence_number for each in found] == [1, 2, 3]
    assert {each.dead_letter and each.dead_letter[0] for each in found} == {"TTLExpiredException"}
    await until(lambda: not is_named(door, "brief"))


async def test_a_subscription_that_dies_under_load_loses_and_disorders_nothing(
    door: Door, broker: Broker, vhost: str
) -> None:
    """So many messages are on their way to it as may be."""
    stop = asyncio.Event()
    sent = 0

    async def send_on() -> None:
        nonlocal sent
        while not stop.is_set():
            batch = [outgoing(f"m{sent + number}") for number in range(1, 101)]
            await door.namespace.send(EVENTS, batch)
            sent += 100
            await asyncio.sleep(0.2)

    senders = asyncio.create_task(send_on())
    await until(lambda: sent >= 500)
    async with dead_queue(broker, vhost, path("audit").entity):
        await until(lambda: is_named(door, "audit"), within_s=WITHIN_S)
        before = sent
        await until(lambda: sent > before + 1_000, within_s=WITHIN_S)
    await until(lambda: not is_named(door, "audit"), within_s=WITHIN_S)
    await asyncio.sleep(0.5)
    stop.set()
    with suppress(asyncio.CancelledError):
        await senders
    for name in ("audit", "billing"):
        client = door.client(ReceiveMode.RECEIVE_AND_DELETE, path(name))
        found = await client.receive(sent)
        assert [(each.record.body.decode(), each.sequence_number) for each in found] == numbered(
            1, sent
        )
