"""The remote client and a whole bridge: topics, rules, deferral, sessions, dead letters, kills."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bridge.model.entity import CorrelationFilter, FalseFilter, Rule, SqlFilter, TrueFilter
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.errors import RemoteConnectionLost, RemoteError, RemoteNotFound, RemoteRefused
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Abandon, Complete, DeadLetter, Defer
from bridge.remote.patience import Patience
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import Int, Long, Symbol, Timestamp
from tests.fixtures.waiting import until

WAIT_S = 120.0
TOPIC = "remote-topic"
AUDIT = f"{TOPIC}/Subscriptions/audit"
SESSIONS = "remote-sessions"

ENTITIES = {
    "remote-all": {},
    "remote-deferred": {},
    "remote-dead": {},
    "remote-deleted": {},
    "remote-kill": {"LockDuration": "PT5M", "MaxDeliveryCount": 2000},
    SESSIONS: {"RequiresSession": True},
}
TOPICS = [{"Name": TOPIC, "Subscriptions": [{"Name": "audit"}]}]

ODD = {
    "long": Long(2**40),
    "int": Int(-1),
    "when": Timestamp(1_709_502_629_433),
    "symbol": Symbol("s"),
    "binary": b"\x00\xff",
    "null": None,
}


@asynccontextmanager
async def remote(bridge: Any, **options: Any) -> AsyncIterator[RemoteNamespace]:
    """A namespace of a bridge."""
    text = bridge.connection_string
    credential = credential_in(text)
    assert credential is not None
    async with RemoteNamespace(RemoteAddress.of(text), credential, **options) as namespace:
        yield namespace


def odd(number: int) -> RemoteMessage:
    """Return a message with types that azure-servicebus loses or refuses."""
    return RemoteMessage.of(
        value=[Long(2**40), Symbol("s"), {Symbol("k"): Timestamp(number)}],
        properties=MessageProperties(message_id=f"odd-{number}", user_id=b"u"),
        application_properties=ODD,
    )


async def test_a_message_goes_through_two_entities_with_its_sections_as_they_were(
    bridge: Any,
) -> None:
    """Received, sent on as it came, received again: byte for byte."""
    async with remote(bridge) as namespace:
        sender = await namespace.sender("remote-all")
        await sender.send([odd(1), odd(2)])
        receiver = await namespace.receiver("remote-all")
        for _ in range(2):
            found = await take(receiver, 2)
            for each in found:
                message = each.message
                again = RemoteMessage(
                    properties=message.properties,
                    application_properties=message.application_properties,
                    body=message.body,
                    footer=message.footer,
                )
                await sender.send([again])
            await receiver.settle_all(found, Complete())
        found = await take(receiver, 2)
        for number, each in enumerate(found, 1):
            message = each.message
            assert message.body == odd(number).body
            assert message.application_property_values == ODD
            for name, value in ODD.items():
                assert type(message.application_property_values[name]) is type(value), name
            assert message.property_fields.user_id == b"u"
        await receiver.settle_all(found, Complete())


async def take(receiver: Any, count: int) -> list[Any]:
    """Receive so many messages."""
    found: list[Any] = []
    while len(found) < count:
        more = await receiver.receive(count - len(found), WAIT_S)
        assert more, f"{len(found)} of {count} came"
        found += more
    return found


async def test_deferred_messages(bridge: Any) -> None:
    """Set aside, received by number, settled there in each way."""
    async with remote(bridge) as namespace:
        sender = await namespace.sender("remote-deferred")
        await sender.send([RemoteMessage.of(data=b"%d" % each) for each in range(4)])
        receiver = await namespace.receiver("remote-deferred")
        found = await take(receiver, 4)
        await receiver.settle_all(found, Defer({"why": "later"}))
        assert await receiver.receive(1, 0.2) == []
        numbers = [each.message.sequence_number for each in found]
        management = await namespace.management("remote-deferred")
        peeked = await management.peek(1, 10)
        assert [each.state for each in peeked] == ["deferred"] * 4
        again = await management.receive_deferred(numbers)
        assert [each.message.sequence_number for each in again] == numbers
        assert again[0].message.application_property_values == {"why": "later"}
        tokens = [each.lock_token for each in again]
        assert all(tokens)
        assert len(await management.renew_lock(tokens)) == 4
        await management.settle_deferred(tokens[:1], Complete())
        await management.settle_deferred(tokens[1:2], DeadLetter("r", "d"))
        await management.settle_deferred(tokens[2:3], Abandon())
        await receiver.settle(again[3], Complete())
        with pytest.raises(RemoteNotFound):
            await management.receive_deferred(numbers[:1])
        (last,) = await management.receive_deferred(numbers[2:3], "receive-and-delete")
        assert last.lock_token is None
        dead = await namespace.receiver("remote-deferred/$DeadLetterQueue")
        (lost,) = await take(dead, 1)
        assert lost.message.dead_letter_reason == "r"
        await dead.settle(lost, Complete())


async def test_dead_letters_are_peeked_and_received(bridge: Any) -> None:
    """In the sub-queue, named as Azure names it."""
    path = "remote-dead/$DeadLetterQueue"
    async with remote(bridge) as namespace:
        await (await namespace.sender("remote-dead")).send([RemoteMessage.of(data=b"x")])
        receiver = await namespace.receiver("remote-dead")
        (found,) = await take(receiver, 1)
        await receiver.settle(found, DeadLetter("reason", "words"))
        management = await namespace.management(path)
        await until(lambda: peeks(management))
        (peeked,) = await management.peek(1, 5)
        assert peeked.dead_letter_reason == "reason"
        assert peeked.dead_letter_error_description == "words"
        with pytest.raises(RemoteError):
            await namespace.sender(path)


async def peeks(management: Any) -> bool:
    """Whether there is something to peek."""
    return bool(await management.peek(1, 5))


async def test_batch_delete(bridge: Any) -> None:
    """All before a time, with their number."""
    async with remote(bridge) as namespace:
        sender = await namespace.sender("remote-deleted")
        await sender.send([RemoteMessage.of(data=b"%d" % each) for each in range(30)])
        management = await namespace.management("remote-deleted")
        deleted = 0
        now_ms = int(time.time() * 1000) + 60_000
        while deleted < 30:
            deleted += await management.batch_delete(100, now_ms)
        assert deleted == 30
        with pytest.raises(RemoteRefused):
            await management.batch_delete(5_000, now_ms)


async def test_sessions_are_listed(bridge: Any) -> None:
    """By pages; with their states."""
    async with remote(bridge) as namespace:
        sender = await namespace.sender(SESSIONS)
        for each in ("A", "B", "C"):
            properties = MessageProperties(group_id=each)
            await sender.send([RemoteMessage.of(data=b"m", properties=properties)])
        management = await namespace.management(SESSIONS)

        async def listed() -> bool:
            return await management.message_sessions() == ["A", "B", "C"]

        await until(listed)
        assert await management.message_sessions(1, 1) == ["B"]
        held = await namespace.session_receiver(SESSIONS, "B")
        await held.set_state(b"s")
        (found,) = await take(held, 1)
        await held.settle(found, Complete())
        assert await held.renew() > time.time() * 1000
        await held.close()
        again = await namespace.session_receiver(SESSIONS, "B")
        assert await again.state() == b"s"
        with pytest.raises(RemoteRefused):
            await namespace.receiver(SESSIONS)
        with pytest.raises(RemoteRefused, match="SessionId"):
            await sender.send([RemoteMessage.of(data=b"m")])


async def test_rules_of_a_subscription(bridge: Any) -> None:
    """Added, shown as they were added, and removed; what they let through comes."""
    correlation = CorrelationFilter(label="red", properties=(("size", "L"),))
    rules = [
        Rule(name="a-sql", filter=SqlFilter(expression="color = 'red'"), action="SET n = 1"),
        Rule(name="b-correlation", filter=correlation),
        Rule(name="c-false", filter=FalseFilter()),
        Rule(name="d-true", filter=TrueFilter()),
    ]
    async with remote(bridge) as namespace:
        management = await namespace.management(AUDIT)
        for each in await management.rules():
            await management.remove_rule(each.name)
        assert await management.rules() == []
        for rule in rules:
            await management.add_rule(rule)
        assert await management.rules() == rules
        assert await management.rules(1, 2) == rules[1:3]
        await management.remove_rule("d-true")
        await management.remove_rule("b-correlation")
        with pytest.raises(RemoteNotFound):
            await management.remove_rule("d-true")
        sender = await namespace.sender(TOPIC)
        for color in ("blue", "red"):
            await sender.send([RemoteMessage.of(application_properties={"color": color})])
        receiver = await namespace.receiver(AUDIT)
        (found,) = await take(receiver, 1)
        assert found.message.application_property_values["color"] == "red"
        assert found.message.application_property_values["n"] == 1
        await receiver.settle(found, Complete())
        assert await receiver.receive(1, 0.2) == []


@pytest.mark.long
async def test_nothing_is_lost_and_only_doubt_doubles_when_the_bridge_is_killed(
    start_bridge: Any,
) -> None:
    """What was accepted is there once or, if its send was in doubt and repeated, twice at most."""
    bridge = start_bridge()
    sent: Counter[str] = Counter()
    doubtful: set[str] = set()
    async with remote(bridge, patience=Patience(total_s=WAIT_S)) as namespace:
        sender = await namespace.sender("remote-kill")

        async def send(lane: int) -> None:
            for number in range(60):
                name = f"{lane}-{number}"
                message = RemoteMessage.of(data=name.encode())
                while True:
                    try:
                        await sender.send([message])
                        break
                    except RemoteConnectionLost as error:
                        if error.in_doubt:
                            doubtful.add(name)
                sent[name] += 1

        lanes = [asyncio.create_task(send(lane)) for lane in range(4)]
        await until(lambda: sum(sent.values()) > 40)
        await asyncio.to_thread(bridge.kill)
        await asyncio.to_thread(bridge.start)
        await asyncio.gather(*lanes)

        receiver = await namespace.receiver("remote-kill")
        came: Counter[str] = Counter()
        while found := await receiver.receive(100, 3.0 if set(came) >= set(sent) else WAIT_S):
            came.update(each.message.data.decode() for each in found)
            await receiver.settle_all(found, Complete())
    assert set(came) == set(sent)
    doubled = {name for name, count in came.items() if count > 1}
    assert doubled <= doubtful
