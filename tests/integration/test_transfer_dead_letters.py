"""Receivers and peeks of `ENTITY/$Transfer/$DeadLetterQueue`, and its counts, on RabbitMQ."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from bridge.broker.connection.endpoint import parse_url
from bridge.engine.api import Abandon, Complete, DeadLetter, Defer, Received, ReceiveMode
from bridge.message.transfers import transfer_of
from bridge.model import entity as model
from bridge.model.errors import EntityNotFound, NotAllowed
from bridge.model.name import EntityPath, SubQueue, short_id
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire import commits, envelope, headers
from bridge.wire.basic import text
from bridge.wire.commits import CommitContent
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.gateway_door import serve

QUEUES = (
    model.Queue(name="orders", transactional=True),
    model.Queue(name="one"),
    model.Queue(name="plain"),
)
TOPIC = model.Topic(
    name="events",
    subscriptions=(model.Subscription(topic="events", name="audit"),),
    transactional=True,
)
DEAD = EntityPath("Orders", SubQueue.TRANSFER_DEAD_LETTER)
OF_TOPIC = EntityPath("events", SubQueue.TRANSFER_DEAD_LETTER)


@pytest_asyncio.fixture
async def door(broker: Broker, vhost: str) -> AsyncIterator[Door]:
    """A bridge with a queue and a topic that had transactions."""
    endpoint = parse_url(broker.url_of(vhost))
    async with open_door(endpoint, broker.management_url, *QUEUES) as opened:
        await opened.namespace.apply(model.Namespace(queues=QUEUES, topics=(TOPIC,)))
        await until(lambda: len(opened.sidecar.leading) == 4)
        yield opened


async def refuse(door: Door, *texts: str, pinned: str = "orders") -> None:
    """Commit a transaction that sends texts to no entity."""
    transaction = uuid.uuid4().bytes
    short = short_id(incarnation_of(door.namespace.entity(EntityPath(pinned))))
    nowhere = model.Queue(name="nowhere")
    transfers = [
        transfer_of(nowhere, outgoing(each), transaction, place, short)
        for place, each in enumerate(texts)
    ]
    body = commits.encode(transaction, CommitContent(transfers=transfers))
    await door.namespace._sender.ask(pinned, "", envelope.HEADERS, body, persistent=True)


def bodies(found: list[Received]) -> list[str]:
    """Return the texts of messages."""
    return [each.record.body.decode() for each in found]


@pytest.mark.parametrize(("pinned", "path"), [("orders", DEAD), ("events", OF_TOPIC)])
async def test_transfer_dead_letters_are_settled_in_all_ways(
    door: Door, pinned: str, path: EntityPath
) -> None:
    """Completed, abandoned (with changes, too) and deferred; never dead-lettered again."""
    client = door.client(path=path)
    client.receiver.add_credit(4)
    await refuse(door, "a", "b", "c", "d", pinned=pinned)
    a, b, c, d = await client.wait(4)
    assert bodies([a, b, c, d]) == ["a", "b", "c", "d"]
    table = a.record.properties.headers or {}
    assert table[headers.DEAD_LETTER_REASON] == ("S", b"MessagingEntityNotFoundException")
    settle = door.namespace.settle
    with pytest.raises(NotAllowed, match="cannot be dead-lettered again"):
        await settle(path, a.lock_token, DeadLetter(reason="R"))
    await settle(path, a.lock_token, Complete())
    await settle(path, b.lock_token, Abandon())
    await settle(path, c.lock_token, Abandon(properties={"x": text("1")}))
    await settle(path, d.lock_token, Defer())
    client.receiver.add_credit(2)
    again = {each.record.body: each for each in await client.wait(2)}
    assert again.keys() == {b"b", b"c"}
    assert (again[b"c"].record.properties.headers or {})["x"] == ("S", b"1")
    assert again[b"c"].sequence_number == c.sequence_number
    for each in again.values():
        await settle(path, each.lock_token, Complete())
    (deferred,) = await door.namespace.receive_deferred(
        path, [d.sequence_number], ReceiveMode.PEEK_LOCK
    )
    assert deferred.record.body == b"d"
    await settle(path, deferred.lock_token, Complete())
    await client.receiver.close()
    assert await door.namespace.peek(path, 0, 10) == []


async def test_peeks_see_transfer_dead_letters_and_take_none(door: Door) -> None:
    """By their numbers, page by page; and counts say how many there are."""
    assert await door.namespace.peek(DEAD, 0, 10) == []
    texts = [f"{number:02}" for number in range(25)]
    await refuse(door, *texts)
    entity = door.namespace.entity(EntityPath("orders"))

    async def counted() -> bool:
        (counts,) = await door.namespace.counting.counts([entity])
        return (counts.transfer, counts.transfer_dead_letter, counts.active) == (0, 25, 0)

    await until(counted)
    for _ in range(2):
        seen: list[Received] = []
        while page := await door.namespace.peek(
            DEAD, seen[-1].sequence_number + 1 if seen else 0, 10
        ):
            seen += page
        assert sorted(bodies(seen)) == texts
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE, DEAD)
    assert sorted(bodies(await client.receive(25))) == texts
    await client.receiver.close()


async def test_what_waits_for_its_target_is_counted_in_its_source(door: Door) -> None:
    """Of a topic, too."""
    door.namespace.note_full("one")
    transaction = uuid.uuid4().bytes
    transfer = transfer_of(QUEUES[1], outgoing("a"), transaction, 0, b"pinned")
    body = commits.encode(transaction, CommitContent(transfers=[transfer]))
    await door.namespace._sender.ask("events", "", envelope.HEADERS, body, persistent=True)
    entity = door.namespace.entity(EntityPath("events"))

    async def counted(count: int) -> bool:
        (counts,) = await door.namespace.counting.counts([entity])
        return counts.transfer == count

    await until(lambda: counted(1))
    door.namespace._sending.note_changed("one")
    await until(lambda: counted(0))


@pytest.mark.parametrize("path", ["plain", "events/subscriptions/audit", "nowhere"])
async def test_without_transactions_there_is_no_such_sub_queue(door: Door, path: str) -> None:
    """Nor has a subscription one: its transactions are its topic's."""
    with pytest.raises(EntityNotFound):
        door.namespace.receive_entity(EntityPath(path, SubQueue.TRANSFER_DEAD_LETTER))


async def test_the_sub_queue_goes_with_its_entity(door: Door) -> None:
    """Deleted with all that belongs to transfers."""
    await refuse(door, "a")
    queue = names.transfer_dead_letter_queue("orders")
    await until(lambda: there(door, queue))
    await door.namespace.administration.delete("orders")
    assert not [each for each in await door.management.queue_names() if each.startswith("orders")]


async def there(door: Door, queue: str) -> bool:
    """Whether RabbitMQ has a queue."""
    return queue in await door.management.queue_names()


async def test_an_unmodified_sdk_receives_and_peeks_there(door: Door) -> None:
    """Azure's own for Python, by its name of the sub-queue."""
    await refuse(door, "a", "b")
    async with serve(door) as served:
        string = (
            f"Endpoint=sb://127.0.0.1:{served.port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )

        def use() -> list[str]:
            with ServiceBusClient.from_connection_string(string) as client:
                sub_queue = ServiceBusSubQueue.TRANSFER_DEAD_LETTER
                with client.get_queue_receiver("orders", sub_queue=sub_queue) as receiver:
                    found = []
                    while len(found) < 2:
                        for each in receiver.receive_messages(2, max_wait_time=5):
                            found.append(f"{each} {each.dead_letter_reason}")
                            receiver.complete_message(each)
                    assert receiver.peek_messages(5) == []
                with client.get_queue_sender("orders") as sender:
                    sender.send_messages(ServiceBusMessage("c"))
            return found

        reason = "MessagingEntityNotFoundException"
        assert await asyncio.to_thread(use) == [f"a {reason}", f"b {reason}"]
