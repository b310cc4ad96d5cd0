"""Queues that an operator deletes by hand: what is sent or moved meanwhile is not lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError
from bridge.broker.management.live import HttpBroker
from bridge.engine.administration.live_resources import read_live
from bridge.engine.api import DeadLetter
from bridge.message.message import EXPIRED
from bridge.message.received import Received
from bridge.model import entity as model
from bridge.model.errors import ServerBusy, ServiceBusError
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.resources import Binding
from bridge.topology.shards import shard_of
from bridge.wire import headers
from bridge.wire.basic import python_value
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.session_door import SessionClient, bodies, send

QUEUE = model.Queue(name="orders", lock_duration_ms=60_000)
ALL = model.Subscription(topic="events", name="all")
SENDERS = 8
SHARDS = 4


async def dead_letter(door: Door, token: UUID | None) -> bool:
    """Dead-letter a message; whether that was done."""
    assert token is not None
    try:
        await door.namespace.settle(door.path, token, DeadLetter(reason="why"))
    except (ServiceBusError, BrokerError):
        return False
    return True


async def test_what_is_sent_while_the_active_queue_is_not_there_arrives(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """An operator deletes it under load: it is made again, and has all that was sent since."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        sent: list[str] = []
        is_over = False

        async def send(sender: int) -> None:
            number = 0
            while not is_over:
                body = f"{sender}-{number}"
                await door.send(body)
                sent.append(body)
                number += 1

        senders = [asyncio.create_task(send(each)) for each in range(SENDERS)]
        await until(lambda: len(sent) > 200)
        await confirming.declarations.delete_queue(names.active_queue(QUEUE.name))
        before = set(sent)
        count = len(sent) + 400
        await until(lambda: len(sent) > count)
        is_over = True
        await asyncio.gather(*senders)

        # What was on its way at the deletion may have been in the queue.
        since = {body for body in set(sent) - before if not _is_first(body, before)}
        client = door.client()
        arrived: set[str] = set()
        client.receiver.add_credit(1_000)

        def has_all() -> bool:
            arrived.update(each.record.body.decode() for each in client.received)
            return since <= arrived

        await until(has_all)
        numbers = [each.sequence_number for each in client.received]
        assert len(numbers) == len(set(numbers))


def _is_first(body: str, before: set[str]) -> bool:
    """Whether it is a sender's first message since: that one may have been under way."""
    sender, _, number = body.partition("-")
    return int(number) == 0 or f"{sender}-{int(number) - 1}" in before


async def test_a_subscriptions_queue_is_made_again_with_the_next_messages(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """The other subscriptions miss nothing; RabbitMQ confirms what they alone have."""
    audit, other = (EntityPath(f"events/subscriptions/{name}") for name in ("audit", "other"))
    topic = model.Topic(
        name="events",
        subscriptions=tuple(
            model.Subscription(topic="events", name=name) for name in ("audit", "other")
        ),
    )
    async with open_door(endpoint, broker.management_url) as door:
        await door.namespace.apply(model.Namespace(topics=(topic,)))
        await confirming.declarations.delete_queue(names.active_queue(audit.entity))
        client = door.client(path=audit)
        client.receiver.add_credit(1)
        count = 0

        async def has_come() -> bool:
            nonlocal count
            count += 1
            await door.namespace.send(EntityPath("events"), [outgoing(f"m{count}")])
            return bool(client.received)

        await until(has_come)
        received = await door.client(path=other).receive(count)
        assert [each.record.body for each in received] == [
            b"m%d" % at for at in range(1, count + 1)
        ]


async def test_what_cannot_be_moved_stays_until_its_target_is_made_again(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """The dead-letter queue is gone: nobody is told that a message is there."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await door.send("a")
        client = door.client()
        (held,) = await client.receive()
        await confirming.declarations.delete_queue(names.dead_letter_queue(QUEUE.name))
        assert not await dead_letter(door, held.lock_token)
        await until(lambda: dead_letter(door, held.lock_token))
        dead = door.client(path=door.dead_letters)
        (letter,) = await dead.receive()
        assert letter.sequence_number == held.sequence_number


async def test_the_stream_of_what_was_moved_is_made_again(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """So peeks show what is moved from then on."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await door.send("a")
        (held,) = await door.client().receive()
        await confirming.declarations.delete_queue(names.moved(QUEUE.name))
        await until(lambda: dead_letter(door, held.lock_token))
        (peeked,) = await door.namespace.peek(door.dead_letters, 0, 10)
        assert peeked.sequence_number == held.sequence_number


async def test_a_stream_of_what_was_moved_that_is_made_again_shows_what_is_in_it_alone(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Entries of the earlier stream were at other places: nothing is shown for them."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:

        async def shown() -> list[tuple[int, bytes]]:
            try:
                found = await door.namespace.peek(door.dead_letters, 0, 10)
            except ServerBusy:  # what was read up to is not there
                return []
            return [(each.sequence_number, each.record.body) for each in found]

        await door.send("a", "b", "c")
        first, second, third = await door.client().receive(3)
        assert await dead_letter(door, first.lock_token)
        assert await dead_letter(door, second.lock_token)
        assert await shown() == [(1, b"a"), (2, b"b")]
        await confirming.declarations.delete_queue(names.moved(QUEUE.name))
        await until(lambda: dead_letter(door, third.lock_token))
        await until(shown)
        assert await shown() == [(3, b"c")]


@pytest.mark.parametrize("name_of", [names.sessions_queue, names.active_queue])
async def test_the_queues_of_a_shard_of_sessions_are_made_again(
    name_of: Callable[[str, int], str], endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Receivers of its sessions have lost them; then its sessions are accepted as before."""
    queue = model.Queue(
        name="orders", requires_session=True, session_shards=SHARDS, folds_session_ids=True
    )
    (session_id,) = [each for each in "abcdefgh" if shard_of(queue, each) == 1][:1]
    async with open_door(endpoint, broker.management_url, queue) as door:
        holder = await SessionClient(door).accept(session_id)
        await confirming.declarations.delete_queue(name_of(queue.name, 1))
        await holder.wait_for_loss()

        async def accepted() -> bool:
            try:
                await again.accept(session_id, timeout_s=1)
            except (ServiceBusError, BrokerError):
                return False
            return True

        again = SessionClient(door)
        await until(accepted)
        await send(door, session_id, "since")
        assert bodies(await again.receive()) == ["since"]


async def test_the_exchanges_of_a_topic_are_made_again(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """The front exchange, and the one that leads to its subscriptions, with what is bound to it."""
    topic = model.Topic(name="events", subscriptions=(ALL,))
    async with open_door(endpoint, broker.management_url) as door:
        await door.namespace.apply(model.Namespace(topics=(topic,)))
        events, every = EntityPath(topic.name), EntityPath(ALL.path)
        client = door.client(path=every)
        for exchange in (names.front(topic.name), names.active_exchange(topic.name)):
            await confirming.declarations.delete_exchange(exchange)

            async def arrives() -> bool:
                with contextlib.suppress(ServiceBusError, BrokerError):
                    await door.namespace.send(events, [outgoing("since")])
                client.receiver.add_credit(1)
                return bool(client.received)

            await until(arrives)
            client.received.clear()


async def test_dead_letters_of_rabbitmq_while_their_queue_is_not_there(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """RabbitMQ keeps what expires meanwhile, but between the making of the queue and its binding.

    Either is a dead letter afterwards, once.
    """
    queue = model.Queue(name="letters", dead_lettering_on_message_expiration=True)
    path = EntityPath(queue.name)
    async with open_door(endpoint, broker.management_url, queue) as door:
        await confirming.declarations.delete_queue(names.dead_letter_queue(queue.name))
        messages = [outgoing(str(number), ttl_ms=50) for number in range(20)]
        await door.namespace.send(path, messages)
        letters = names.dead_letter_queue(queue.name)
        await until(lambda: door.management.queue(letters))
        dead = door.client(path=EntityPath(queue.name, SubQueue.DEAD_LETTER))
        found = await dead.receive(20)
        assert {each.record.body for each in found} == {b"%d" % number for number in range(20)}
        assert {_reason(each) for each in found} == {EXPIRED}
        assert sorted(each.sequence_number for each in found) == list(range(1, 21))
        dead.receiver.add_credit(1)
        await asyncio.sleep(1)
        assert not dead.received


def _reason(letter: Received) -> tuple[str, str] | None:
    """The reason and description of a letter that RabbitMQ moved, or the bridge published again."""
    table = letter.record.properties.headers
    if letter.dead_letter is not None or table is None:
        return letter.dead_letter
    reason, description = (
        str(python_value(table[each]))
        for each in (headers.DEAD_LETTER_REASON, headers.DEAD_LETTER_ERROR_DESCRIPTION)
    )
    return reason, description


@pytest.mark.long
async def test_dead_letters_of_rabbitmq_while_their_queue_is_not_bound(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Of a subscription; those that came before the binding was deleted are there once."""
    subscription = model.Subscription(
        topic="news", name="audit", dead_lettering_on_message_expiration=True
    )
    topic = model.Topic(name="news", subscriptions=(subscription,))
    async with (
        open_door(endpoint, broker.management_url) as door,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        await door.namespace.apply(model.Namespace(topics=(topic,)))
        dead = door.client(path=EntityPath(subscription.path, SubQueue.DEAD_LETTER))
        await door.namespace.send(EntityPath("news"), [outgoing("early", ttl_ms=50)])
        early = await dead.receive(1)
        await door.complete(*early, path=EntityPath(subscription.path, SubQueue.DEAD_LETTER))
        letters = names.dead_letter_queue(subscription.path)
        exchange = names.dead_letter_exchange(subscription.path)
        deleted = [
            each
            for each in (await read_live(live)).bindings
            if (each.source, each.destination) == (exchange, letters)
        ]
        assert deleted
        for each in deleted:
            await live.delete_binding(each)
        late = [outgoing(str(number), ttl_ms=50) for number in range(5)]
        await door.namespace.send(EntityPath("news"), late)
        found = await dead.receive(5)
        assert {each.record.body for each in found} == {b"%d" % number for number in range(5)}
        dead.receiver.add_credit(1)
        await asyncio.sleep(1)
        assert not dead.received


async def test_dead_letters_of_rabbitmq_of_a_queue_that_allows_no_receives(
    endpoint: Endpoint, broker: Broker
) -> None:
    """They are there once it allows them again, though their queue was not bound meanwhile."""
    queue = model.Queue(
        name="letters",
        dead_lettering_on_message_expiration=True,
        status=model.EntityStatus.RECEIVE_DISABLED,
    )
    async with (
        open_door(endpoint, broker.management_url, queue) as door,
        HttpBroker(endpoint, broker.management_url) as live,
    ):
        letters = names.dead_letter_queue(queue.name)
        exchange = names.dead_letter_exchange(queue.name)

        async def bound() -> list[Binding]:
            return [
                each
                for each in (await read_live(live)).bindings
                if (each.source, each.destination) == (exchange, letters)
            ]

        deleted = await bound()
        assert deleted
        for each in deleted:
            await live.delete_binding(each)
        late = [outgoing(str(number), ttl_ms=50) for number in range(5)]
        await door.namespace.send(EntityPath(queue.name), late)
        await until(bound)
        administration = door.namespace.administration
        there = administration.get(queue.name)
        assert isinstance(there, model.Queue)
        await administration.update(replace(there, status=model.EntityStatus.ACTIVE))
        dead = door.client(path=EntityPath(queue.name, SubQueue.DEAD_LETTER))
        found = await dead.receive(5)
        assert {each.record.body for each in found} == {b"%d" % number for number in range(5)}
