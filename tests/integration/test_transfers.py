"""What transactions send to other entities, on a RabbitMQ: there once, or dead letters."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest_asyncio

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.engine.api import Received, ReceiveMode
from bridge.message.transfers import transfer_of
from bridge.model import entity as model
from bridge.model.entity import EntityStatus
from bridge.model.name import EntityPath, short_id
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire import commits, envelope, headers
from bridge.wire.basic import Properties
from bridge.wire.commits import CommitContent, CommitVerdict, TransferredEnvelope
from bridge.wire.envelope import Item, Operation
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.test_standing_work import Ended, EndingSupervisor, end_all

QUEUES = (model.Queue(name="orders"), model.Queue(name="one"), model.Queue(name="two"))
TRANSFER_QUEUE = names.transfer_queue("orders")
DEAD = names.transfer_dead_letter_queue("orders")


@pytest_asyncio.fixture
async def door(broker: Broker, vhost: str) -> AsyncIterator[Door]:
    """A bridge with a queue that transactions pin, and their targets."""
    endpoint = parse_url(broker.url_of(vhost))
    async with open_door(endpoint, broker.management_url, *QUEUES) as opened:
        await until(lambda: len(opened.sidecar.leading) == len(QUEUES))
        yield opened


async def commit(door: Door, *sends: tuple[str, str], transaction: bytes | None = None) -> None:
    """Commit a transaction on `orders` that sends texts to other entities."""
    transaction = transaction or uuid.uuid4().bytes
    await commit_transfers(door, transaction, transfers_of(door, transaction, *sends))


def transfers_of(
    door: Door, transaction: bytes, *sends: tuple[str, str]
) -> list[TransferredEnvelope]:
    """Return the transfers of a transaction that sends texts to other entities."""
    pinned = door.namespace.entity(EntityPath("orders"))
    transfers = []
    for place, (path, text) in enumerate(sends):
        target = door.namespace.directory.known(path) or model.Queue(name=path)
        assert isinstance(target, model.Queue | model.Topic)
        short = short_id(incarnation_of(pinned))
        transfers.append(transfer_of(target, outgoing(text), transaction, place, short))
    return transfers


async def commit_transfers(
    door: Door, transaction: bytes, transfers: list[TransferredEnvelope]
) -> None:
    """Commit a transaction on `orders` that has transfers alone."""
    body = commits.encode(transaction, CommitContent(transfers=transfers))
    ask = door.namespace._sender.ask
    answer = await ask("orders", "", envelope.HEADERS, body, persistent=True)
    assert commits.decode_verdict(answer.content) == (CommitVerdict.COMMITTED, "")


async def received(door: Door, path: str, count: int) -> list[str]:
    """Receive and delete so many messages; return their texts."""
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE, EntityPath(path))
    found: list[Received] = await client.receive(count)
    await client.receiver.close()
    return [each.record.body.decode() for each in found]


async def dead(connection: Connection) -> tuple[str, str]:
    """Take a message out of the transfer dead-letter queue; return its text and its reason."""
    body, reason = await dead_body(connection)
    return body.decode(), reason


async def dead_body(connection: Connection) -> tuple[bytes, str]:
    """Do the same for a message that may be no text."""
    channel = await connection.channel()

    async with asyncio.timeout(120):
        while True:
            delivery = await channel.consumers.get(DEAD)
            if delivery is not None:
                break
            await asyncio.sleep(0.05)
    channel.ack(delivery.tag)
    await channel.close()
    table = Properties.decode(delivery.properties).headers or {}
    reason = table[headers.DEAD_LETTER_REASON][1]
    assert isinstance(reason, bytes)
    return delivery.body, reason.decode()


async def test_transfers_come_to_their_targets_in_order_and_once(door: Door) -> None:
    """Also those of a commit that comes again."""
    transaction = uuid.uuid4().bytes
    texts = [f"{number:03}" for number in range(300)]
    sends = [("one" if int(each) % 2 else "two", each) for each in texts]
    for at in range(0, 300, 50):
        await commit(door, *sends[at : at + 50], transaction=transaction[:15] + bytes((at,)))
    await commit(door, *sends[:50], transaction=transaction[:15] + bytes(1))
    assert await received(door, "one", 150) == texts[1::2]
    assert await received(door, "two", 150) == texts[::2]
    await commit(door, ("one", "last"))
    assert await received(door, "one", 1) == ["last"]


async def test_a_transfer_that_its_target_refuses_is_a_dead_letter_of_its_own_queue(
    door: Door, connection: Connection
) -> None:
    """With Azure's reason; what goes to others is not kept from them."""
    administration = door.namespace.administration
    one = replace(QUEUES[1], status=EntityStatus.SEND_DISABLED)
    await administration.update(one)
    await commit(door, ("one", "disabled"), ("nowhere", "missing"), ("two", "fine"))
    assert await received(door, "two", 1) == ["fine"]
    found = [await dead(connection), await dead(connection)]
    assert found == [
        ("disabled", "MessagingEntityDisabledException"),
        ("missing", "MessagingEntityNotFoundException"),
    ]
    assert door.namespace.counters.unforwardable == 2


async def test_a_transfer_that_cannot_be_read_is_a_dead_letter_and_others_pass(
    door: Door, connection: Connection
) -> None:
    """Its forwarder does not fail again and again; nor does a change of the target come of it."""
    transaction = uuid.uuid4().bytes
    (good,) = transfers_of(door, transaction, ("one", "fine"))
    bodies = (
        b"nonsense",
        envelope.encode(Operation.SEND, transaction, [Item(b"no properties", b"unreadable")]),
        envelope.encode_cancel(transaction, [1]),
    )
    transfers = [TransferredEnvelope("one", body) for body in bodies]
    await commit_transfers(door, transaction, [*transfers, good])
    assert await received(door, "one", 1) == ["fine"]
    found = [await dead_body(connection) for _ in bodies]
    assert found == [
        (bodies[0], "MalformedMessage"),
        (b"unreadable", "MalformedMessage"),
        (bodies[2], "MalformedMessage"),
    ]
    assert not door.namespace._supervisor.failures["transfers"]


async def test_a_full_target_has_its_transfers_wait_and_others_pass(door: Door) -> None:
    """As Azure does: they are no dead letters. Health names what waits."""
    door.namespace.note_full("one")
    await commit(door, ("one", "a"), ("two", "b"), ("one", "c"))
    assert await received(door, "two", 1) == ["b"]
    waits = door.namespace._supervisor.waits
    await until(lambda: any("'one' takes nothing now" in each for each in waits.sentences()))
    door.namespace._sending.note_changed("one")
    assert await received(door, "one", 2) == ["a", "c"]
    await until(lambda: not waits.sentences())


async def test_a_forwarder_of_transfers_that_ends_comes_back(broker: Broker, vhost: str) -> None:
    """Ended by an error or by a return."""
    endpoint, supervisor = parse_url(broker.url_of(vhost)), EndingSupervisor()
    url = broker.management_url
    async with open_door(endpoint, url, *QUEUES, supervisor=supervisor) as door:
        await until(lambda: len(door.sidecar.leading) == len(QUEUES))
        await commit(door, ("one", "a"))
        assert await received(door, "one", 1) == ["a"]
        for error in (Ended(text="by the test"), None):
            await end_all(supervisor, "transfers", error)
            await commit(door, ("one", "b"))
            assert await received(door, "one", 1) == ["b"]


async def test_an_entity_without_transfers_has_no_forwarder_nor_queue(
    door: Door, connection: Connection
) -> None:
    """From the first one on it has; the next leader knows it by the journal."""
    forwarding = door.namespace.forwarding
    await door.namespace.send(EntityPath("orders"), [outgoing("a")])
    assert await received(door, "orders", 1) == ["a"]
    assert not forwarding._transfers
    await commit(door, ("one", "b"))
    assert list(forwarding._transfers) == ["orders"]
    assert await received(door, "one", 1) == ["b"]
    (leader,) = (each for each in door.sidecar.leading if each.name == "orders")
    leader.leave("a test")
    await until(lambda: leader not in door.sidecar.leading and not forwarding._transfers)
    await until(lambda: list(forwarding._transfers) == ["orders"])
    await door.namespace.administration.delete("orders")
    await until(lambda: not forwarding._transfers)
    queues = await door.management.queue_names()
    assert not [each for each in queues if each.startswith("orders/")]
