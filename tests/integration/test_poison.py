"""Poison never stops an entity: it becomes a dead letter, or is named, and the next one goes on.

RabbitMQ takes any of these from whoever may publish. Each is published into each queue that the
bridge consumes, and healthy messages behind them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from azure.servicebus._pyamqp._decode import decode_payload

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Received
from bridge.engine.clock import now_ms
from bridge.gateway.links.messages import message_of
from bridge.machine.inbox.wheel import place
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology import definitions, names
from bridge.topology.resources import Value
from bridge.wire import envelope, headers
from bridge.wire.basic import Properties, Table
from bridge.wire.envelope import Item, Operation
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import WAIT_S, Client, Door, open_door, outgoing
from tests.integration.poison import FIELDS, Poison, Publisher, envelopes, messages

pytestmark = pytest.mark.long

ORDERS = model.Queue(name="orders", dead_lettering_on_message_expiration=True)

FILTER = model.CorrelationFilter(message_id="m", properties=(("color", "red"),))
EVENTS = model.Topic(
    name="events",
    subscriptions=(
        model.Subscription(topic="events", name="all", dead_lettering_on_message_expiration=True),
        model.Subscription(
            topic="events", name="red", rules=(model.Rule(name="red", filter=FILTER),)
        ),
    ),
)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue."""
    async with open_door(endpoint, broker.management_url, ORDERS) as opened:
        yield opened


@pytest_asyncio.fixture
async def publisher(endpoint: Endpoint) -> AsyncIterator[Publisher]:
    """A native publisher."""
    opened = Publisher(endpoint)
    yield opened
    await opened.close()


async def drain(
    door: Door, client: Client, *, dead: bool = False, awaited: bytes | None = None
) -> list[Received]:
    """Receive and complete until nothing has come for a second; each can be shown to an SDK.

    Args:
        awaited: the body of a message that comes for certain, however long it takes.
    """
    found: list[Received] = []
    client.receiver.add_credit(5_000)
    while True:
        has_come = awaited is None or any(each.record.body == awaited for each in found)
        try:
            async with asyncio.timeout(1.5 if has_come else WAIT_S):
                (received,) = await client.wait(1)
        except TimeoutError:
            await client.receiver.close()
            return found
        decode_payload(memoryview(message_of(received)))
        await door.complete(received, path=door.dead_letters if dead else None)
        found.append(received)


async def drained(
    door: Door, awaited: bytes | None = None
) -> tuple[list[Received], list[Received]]:
    """What is in the queue, and what is dead."""
    alive = await drain(door, door.client(), awaited=awaited)
    return alive, await drain(door, door.client(path=door.dead_letters), dead=True)


def ends(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What has been logged of lives, channels and connections that ended."""
    words = ("sequencer.", "source.lost", "broker.lost", "deferred.lost", "definitions.failed")
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.getMessage().startswith(words)
    ]


@pytest.mark.parametrize("make", [messages, lambda: [*envelopes()]], ids=["messages", "envelopes"])
async def test_at_the_front_door(
    door: Door, publisher: Publisher, caplog: pytest.LogCaptureFixture, make: Any
) -> None:
    """Every message that comes to the sequencer is numbered, or is a dead letter with a reason."""
    await door.send("before")
    taken = await publisher.publish(names.front("orders"), "", make())
    await door.send("after")
    alive, dead = await drained(door, b"after")

    assert ends(caplog) == []
    assert {b"before", b"after"} <= {each.record.body for each in alive}
    if make is messages:
        batons_and_asks = 1  # a baton of nobody's is acked with the next one
        assert len(alive) + len(dead) >= taken + 2 - batons_and_asks - len(FIELDS)
    numbers = [each.sequence_number for each in (*alive, *dead)]
    assert len(numbers) == len(set(numbers))


async def test_one_of_an_envelope(
    door: Door, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """The other messages of the envelope are numbered; this one alone becomes a dead letter."""
    bare = Properties(delivery_mode=2).encode()
    items = [Item(bare, b"first"), Item(b"no properties", b"poison"), Item(bare, b"last")]
    body = envelope.encode(Operation.SEND, bytes(15) + b"a", items)
    assert await publisher.publish(names.front("orders"), "", [(envelope.SILENT_PROPERTIES, body)])
    await door.send("after")
    alive, dead = await drained(door, b"after")

    assert ends(caplog) == []
    assert [each.record.body for each in alive] == [b"first", b"last", b"after"]
    assert [each.record.body for each in dead] == [b"poison"]
    assert [each.sequence_number for each in (*alive, *dead)] == [1, 3, 4, 2]


async def test_at_the_front_door_of_a_topic(
    endpoint: Endpoint, broker: Broker, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """A message becomes a copy in each subscription that takes it, or a dead letter."""
    async with open_door(endpoint, broker.management_url) as opened:
        await opened.namespace.apply(model.Namespace(topics=(EVENTS,)))
        door = replace(opened, path=EntityPath("events/subscriptions/all"))
        topic = replace(opened, path=EntityPath("events"))
        await topic.send("before")
        await publisher.publish(names.front("events"), "", [*messages(), *envelopes()][::4])
        await topic.send("after")
        alive, dead = await drained(door)

    assert ends(caplog) == []
    assert {b"before", b"after"} <= {each.record.body for each in alive}
    numbers = [each.sequence_number for each in (*alive, *dead)]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    "queue",
    [names.active_queue("orders"), names.dead_letter_queue("orders")],
    ids=["active", "dead-letter"],
)
async def test_past_the_front_door(
    door: Door, publisher: Publisher, caplog: pytest.LogCaptureFixture, queue: str
) -> None:
    """A message published into a queue that clients receive from reaches one, or is dead."""
    await door.send("before")
    taken = await publisher.publish("", queue, messages())
    await door.send("after")
    alive, dead = await drained(door, b"after")

    assert ends(caplog) == []
    assert {b"before", b"after"} <= {each.record.body for each in alive}
    assert len(alive) + len(dead) >= taken + 2 - 1 - len(FIELDS)


async def test_among_deferred_messages(
    door: Door, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that somebody publishes there by hand becomes a dead letter, with a reason."""
    from bridge.engine.api import Defer, ReceiveMode

    await door.send("deferred")
    (received,) = await door.client().receive()
    assert received.lock_token is not None
    await door.namespace.settle(door.path, received.lock_token, Defer())
    taken = await publisher.publish("", names.deferred_queue("orders"), messages())
    numbers = [received.sequence_number]
    (found,) = await door.namespace.receive_deferred(
        door.path, numbers, ReceiveMode.RECEIVE_AND_DELETE
    )
    assert found.record.body == b"deferred"
    await until(lambda: door.namespace.poison.counts["deferred"] >= taken)
    alive, dead = await drained(door)

    assert ends(caplog) == []
    assert alive == []
    assert len(dead) >= taken
    table = dead[0].record.properties.headers or {}
    assert table[headers.DEAD_LETTER_REASON][1] in (b"MisplacedMessage", b"MalformedMessage")
    assert dead[0].sequence_number > 0


async def test_in_a_bucket(
    door: Door, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that somebody publishes into a bucket is a dead letter; the others come in time."""
    due_ms = now_ms() + 6_000
    await door.namespace.schedule(door.path, [outgoing("later", scheduled_ms=due_ms)])
    where = place(due_ms, now_ms() - 500)
    taken = await publisher.publish(
        "", names.bucket("orders", where.level, where.slot), messages()[::3]
    )
    client = door.client()
    (received,) = await client.receive()
    assert received.record.body == b"later"
    await door.complete(received)
    await until(lambda: door.sidecar.poison.counts["bucket"] >= taken - 2)
    dead = await drain(door, door.client(path=door.dead_letters), dead=True)

    assert ends(caplog) == []
    assert len(dead) >= taken - 2  # a stamp of 44 bytes is that of a message that was cancelled


async def test_among_messages_that_expired_unnumbered(
    door: Door, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """One that came from no inbox is logged and dropped; one that expired in an inbox is dead."""
    inbox = names.inbox("orders").encode()
    known: Table = {"x-first-death-queue": ("S", inbox)}
    await publisher.publish("", names.EXPIRED_UNNUMBERED, messages())
    odd = Properties(headers=known, delivery_mode=2, user_id="guest").encode()
    assert await publisher.publish("", names.EXPIRED_UNNUMBERED, [(odd, b"lapsed")]) == 1
    (dead,) = await drain(door, door.client(path=door.dead_letters), dead=True)

    assert ends(caplog) == []
    assert dead.record.body == b"lapsed"
    assert door.sidecar.poison.counts["expired-unnumbered"] > 100


async def test_among_notifications(
    door: Door, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may publish the bridges' notifications, and no bridge is stopped by one."""
    notifications: list[Poison] = [
        (Properties(type=kind).encode(), body)
        for kind in ("kept", "wanted", "full", "", "x")
        for body in (b"", b"\xff", b"$", b"a" * 1_000)
    ]
    await publisher.publish(names.EVENTS, "", messages() + notifications)
    await door.send("after")
    (received,) = await door.client().receive()
    await door.complete(received)
    await until(lambda: door.namespace.poison.counts["events"] > 0)

    assert ends(caplog) == []


async def test_in_the_journal(
    endpoint: Endpoint, broker: Broker, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """The next sequencer skips an entry that somebody has published there."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send("one")
        taken = await publisher.publish("", names.journal("orders"), unnumbered())
        assert taken > 100
        await door.send("two")
        await until(lambda: door.sidecar.meters["orders"].published >= 2)
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send("three")
        received = await door.client().receive(3)
        await door.complete(*received)

    assert [each.record.body for each in received] == [b"one", b"two", b"three"]
    assert [each.sequence_number for each in received] == [1, 2, 3]
    assert ends(caplog) == []


def unnumbered() -> list[Poison]:
    """All but what may be a number, a waiting message, or an entry of a newer bridge."""
    forged = (headers.SEQUENCE_NUMBER.encode(), headers.WAITING.encode(), headers.ENTRY.encode())
    return [each for each in messages() if not any(name in each[0] for name in forged)]


WRONG: tuple[Value, ...] = (
    *(None, True, 5, -1, 1.5, "", "x", "P1D", "P99999999999999999999D", [], [[]], {}, {"a": 1}),
    *(10**30, "\ud800" if False else "\u0000", ["a", "b"], [["a", 1], ["b", 2]]),
)


async def test_definitions_of_wrong_types(
    door: Door, broker: Broker, vhost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is named; the entity stays as it was, and the others are heeded."""
    prefix = "/api/global-parameters/"

    def put(entity: str, form: Value) -> None:
        name = definitions.parameter_name(vhost, entity).replace("/", "%2F")
        with contextlib.suppress(OSError, AssertionError):  # RabbitMQ takes not all of them
            broker.management("PUT", prefix + name, {"name": name, "value": form})

    good = dict(definitions.to_json(ORDERS))
    forms: list[Value] = [*WRONG, *({**good, key: wrong} for key in good for wrong in WRONG)]
    seen = 0
    for number, form in enumerate(forms):
        put("orders", form)
        if number % 10 == 0 or number < len(WRONG):
            await door.namespace.reconciler.check()
            assert [queue.name for queue in door.namespace.directory.namespace.queues][:1] == [
                "orders"
            ] or isinstance(form, dict)
            seen += 1
    put("orders", definitions.to_json(ORDERS))
    put("others", definitions.to_json(model.Queue(name="others")))
    put("broken", 5)
    await door.namespace.reconciler.check()
    found = [queue.name for queue in door.namespace.directory.namespace.queues]

    assert found == ["orders", "others"]
    assert door.namespace.poison.counts["definition"] > seen // 2
    assert ends(caplog) == []
    await door.send("after")
    await door.client().receive()


ENDLESS = {
    "deep": b"[" * 20_000 + b"]" * 20_000,
    "long": b'{"kind": "queue", "name": "long", "maxDeliveryCount": %s}' % (b"7" * 5_000),
    "others": json.dumps(definitions.to_json(model.Queue(name="others"))).encode(),
}


async def test_definitions_without_end(
    door: Door, broker: Broker, vhost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is named, and what stands behind it in the list is heeded."""
    names = {entity: definitions.parameter_name(vhost, entity) for entity in ENDLESS}
    paths = {
        entity: f"/api/global-parameters/{quote(names[entity], safe='')}" for entity in ENDLESS
    }
    for entity, value in ENDLESS.items():
        body = b'{"name": "%s", "value": %s}' % (names[entity].encode(), value)
        broker.management("PUT", paths[entity], body)
    try:
        await door.namespace.reconciler.check()
    finally:
        for path in paths.values():
            broker.management("DELETE", path)

    found = [queue.name for queue in door.namespace.directory.namespace.queues]
    assert found == ["orders", "others"]
    assert door.namespace.poison.counts["definition"] == 2
    assert ends(caplog) == []


async def test_a_native_message_above_the_limit(endpoint: Endpoint, broker: Broker) -> None:
    """A dead letter with a reason; one at the limit is delivered."""
    small = model.Queue(name="orders", max_message_size_kb=1)
    async with open_door(endpoint, broker.management_url, small) as door:
        connection = await Connection.open(endpoint, name="native")
        channel = await connection.channel()
        await channel.publisher.confirm_select()
        properties = Properties(delivery_mode=2).encode()
        for size in (1024 - len(properties), 1025 - len(properties)):
            await channel.publisher.publish_confirmed("orders", "", properties, bytes(size))
        (received,) = await door.client().receive()
        await door.complete(received)
        (dead,) = await door.client(path=door.dead_letters).receive()
        await connection.close()

    assert len(received.record.body) == 1024 - len(properties)
    table = dead.record.properties.headers or {}
    assert table[headers.DEAD_LETTER_REASON] == ("S", b"MessageSizeExceeded")
    assert b"1025 bytes" in table[headers.DEAD_LETTER_ERROR_DESCRIPTION][1]  # type: ignore[operator]
