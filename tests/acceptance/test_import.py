"""Messages that keep their numbers: imported into a held queue, and there when the hold ends."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bridge.engine.clock import now_ms
from bridge.remote.errors import RemoteConnectionLost, RemoteError, RemoteNotFound, RemoteRefused
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Abandon, Complete, DeadLetter, Defer
from bridge.remote.patience import Patience
from bridge.remote.sender import RemoteSender
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.primitives import encode_list, encode_uint
from bridge.wire.amqp10.scalars import Int, Long, Timestamp
from bridge.wire.mapping import sections
from bridge.wire.mapping.imported import DEAD_LETTER, SUBSCRIPTION
from tests.acceptance.test_remote import remote, take
from tests.fixtures.waiting import until

RUN = "run-1"
SOURCE, TARGET, KILLED, REFUSING = "import-source", "import-target", "import-killed", "import-not"
SESSIONS, TOPIC, DUE = "import-sessions", "import-topic", "import-due"
ONE, TWO = f"{TOPIC}/Subscriptions/one", f"{TOPIC}/Subscriptions/two"
DEAD = "/$DeadLetterQueue"
WAIT_S = 120.0
DAY_MS = 86_400_000
AGE_MS = 60_000

ENTITIES: dict[str, dict[str, object]] = {
    SOURCE: {"MaxDeliveryCount": 10},
    TARGET: {"MaxDeliveryCount": 10},
    KILLED: {"MaxDeliveryCount": 10},
    REFUSING: {},
    DUE: {},
    SESSIONS: {"RequiresSession": True},
}
TOPICS = [
    {
        "Name": TOPIC,
        "Subscriptions": [
            {"Name": "one"},
            {
                "Name": "two",
                "Rules": [
                    {
                        "Name": "none",
                        "Properties": {
                            "FilterType": "Sql",
                            "SqlFilter": {"SqlExpression": "1 = 0"},
                        },
                    }
                ],
            },
        ],
    }
]


def message(
    number: int,
    *,
    state: int = 0,
    is_dead: bool = False,
    deliveries: int = 0,
    enqueued_ms: int | None = None,
    due_ms: int | None = None,
    text: str = "",
    session_id: str | None = None,
    subscription: str = "",
    topics_number: int = 0,
) -> RemoteMessage:
    """Return a message of another namespace, as a peek gives it."""
    annotations: dict[str, Any] = {
        "x-opt-sequence-number": Long(number),
        "x-opt-enqueued-time": Timestamp(now_ms() - AGE_MS if enqueued_ms is None else enqueued_ms),
        "x-opt-message-state": Int(state),
    }
    if due_ms is not None:
        annotations["x-opt-scheduled-enqueue-time"] = Timestamp(due_ms)
    if is_dead:
        annotations[DEAD_LETTER] = True
    if subscription:
        annotations[SUBSCRIPTION] = subscription
        annotations["x-opt-enqueue-sequence-number"] = Long(topics_number)
    made = RemoteMessage.of(
        data=text.encode() or b"%d" % number,
        properties=MessageProperties(message_id=f"id-{number}", group_id=session_id),
        annotations=annotations,
    )
    fields = [b"\x40", b"\x40", b"\x40", b"\x40", encode_uint(deliveries)]
    return replace(made, header=sections.descriptor(sections.HEADER) + encode_list(fields))


def marked_dead(found: RemoteMessage) -> RemoteMessage:
    """Return a dead letter that says so."""
    marked = RemoteMessage.of(annotations={**found.annotation_values, DEAD_LETTER: True})
    return replace(found, annotations=marked.annotations)


async def peeked(namespace: RemoteNamespace, entity: str) -> dict[int, RemoteMessage]:
    """Peek all messages of an entity, by their numbers."""
    management = await namespace.management(entity)
    found: dict[int, RemoteMessage] = {}
    start = 1
    while page := await management.peek(start, 250):
        found |= {number_of(each): each for each in page}
        start = max(found) + 1
    return found


def number_of(found: RemoteMessage) -> int:
    """Return its sequence number."""
    assert found.sequence_number is not None
    return found.sequence_number


def enqueued(found: RemoteMessage) -> Any:
    """Return its enqueued time."""
    return found.annotation_values["x-opt-enqueued-time"]


async def peeked_at_last(
    namespace: RemoteNamespace, entity: str, numbers: Iterable[int]
) -> dict[int, RemoteMessage]:
    """Peek all messages, when they are these."""
    expected = sorted(numbers)
    end_s = time.monotonic() + WAIT_S
    while sorted(found := await peeked(namespace, entity)) != expected:
        assert time.monotonic() < end_s, f"{sorted(found)}, and not {expected}"
    return found


def transfers(found: Sequence[RemoteMessage]) -> list[list[RemoteMessage]]:
    """Cut messages into transfers of any size."""
    chance, cut, at = random.Random(len(found)), [], 0
    while at < len(found):
        size = chance.choice([1, 2, 7, 100])
        cut.append(list(found[at : at + size]))
        at += size
    return cut


async def test_a_queue_with_messages_in_all_states_is_the_same_at_its_target(bridge: Any) -> None:
    """By peeks at both; and then each is received as at its source, and new ones come behind."""
    async with remote(bridge) as namespace:
        sender = await namespace.sender(SOURCE)
        texts = ["gone", "active", "failed", "dead", "deferred", "twice", "deaddeferred", "last"]
        for each in texts:
            await sender.send([RemoteMessage.of(data=each.encode(), ttl_ms=DAY_MS)])
        management = await namespace.management(SOURCE)
        receiver = await namespace.receiver(SOURCE)
        by_text = {each.message.data: each for each in await take(receiver, len(texts))}
        await receiver.settle(by_text[b"gone"], Complete())
        await receiver.settle_all([by_text[b"active"], by_text[b"last"]], Abandon())
        for each in (b"dead", b"deaddeferred"):
            await receiver.settle(by_text[each], DeadLetter("why", "so it is"))
        await receiver.settle_all([by_text[b"deferred"], by_text[b"twice"]], Defer({"k": "v"}))
        await receiver.settle(by_text[b"failed"], Abandon({"try": "again"}))
        dead = await namespace.receiver(SOURCE + DEAD)
        for each in await take(dead, 2):
            is_deferred = each.message.data == b"deaddeferred"
            await dead.settle(each, Defer() if is_deferred else Abandon())
        twice = number_of(by_text[b"twice"].message)
        (again,) = await management.receive_deferred([twice])
        assert again.lock_token is not None
        await management.settle_deferred([again.lock_token], Abandon())
        due_ms = now_ms() + DAY_MS
        scheduled = [
            RemoteMessage.of(
                data=b"later", annotations={"x-opt-scheduled-enqueue-time": due_ms + each}
            )
            for each in range(3)
        ]
        waiting = await management.schedule(scheduled)
        await management.cancel(waiting[1:2])
        await receiver.close()
        await dead.close()
        numbers = {number_of(each.message) for each in by_text.values()}
        own_numbers = sorted(numbers - {4, 7} - {1} | {waiting[0], waiting[2]})
        own = await peeked_at_last(namespace, SOURCE, own_numbers)
        dead_ones = await peeked_at_last(namespace, SOURCE + DEAD, [4, 7])

        target = await namespace.management(TARGET)
        await target.hold(RUN)
        imports = await namespace.sender(TARGET, import_run=RUN)
        merged = own | {number: marked_dead(each) for number, each in dead_ones.items()}
        for transfer in transfers([merged[number] for number in sorted(merged)]):
            await imports.send(transfer)
            await imports.send(transfer)
        assert await target.peek(1, 1)
        found = await peeked_at_last(namespace, TARGET, own)
        for number, each in found.items():
            assert each.encode() == own[number].encode()
        found = await peeked_at_last(namespace, TARGET + DEAD, dead_ones)
        for number, each in found.items():
            assert each.encode() == dead_ones[number].encode()

        await target.release(RUN)
        await (await namespace.sender(TARGET)).send([RemoteMessage.of(data=b"new")])
        receiver = await namespace.receiver(TARGET)
        got = await take(receiver, 4)
        assert [
            (number_of(each.message), each.message.data, each.message.delivery_count)
            for each in got
        ] == [(2, b"active", 1), (3, b"failed", 1), (8, b"last", 1), (max(waiting) + 1, b"new", 0)]
        assert got[1].message.application_property_values == {"try": "again"}
        assert enqueued(got[0].message) == enqueued(own[2])
        await receiver.settle_all(got, Complete())
        deferred = await target.receive_deferred([5, 6])
        assert [each.message.data for each in deferred] == [b"deferred", b"twice"]
        assert [each.message.delivery_count for each in deferred] == [
            own[number].delivery_count for number in (5, 6)
        ]
        await target.settle_deferred(
            [each.lock_token for each in deferred if each.lock_token], Complete()
        )
        dead = await namespace.receiver(TARGET + DEAD)
        (lost,) = await take(dead, 1)
        assert (number_of(lost.message), lost.message.dead_letter_reason) == (4, "why")
        await dead.settle(lost, Complete())
        dead_management = await namespace.management(TARGET + DEAD)
        (aside,) = await dead_management.receive_deferred([7], "receive-and-delete")
        assert aside.message.data == b"deaddeferred"
        await target.cancel([waiting[0], waiting[2]])
        await peeked_at_last(namespace, TARGET, [])
        await peeked_at_last(namespace, TARGET + DEAD, [])


def spread(count: int) -> list[RemoteMessage]:
    """Return messages in all states, with gaps of 1 to 2^40 between their numbers."""
    chance, found, number = random.Random(count), list[RemoteMessage](), 0
    begun_ms = now_ms()
    for _ in range(count):
        number += chance.choice([1, 1, 2, 50, 2**34])
        state = chance.choice([0, 0, 0, 1, 2])
        is_dead = state != 2 and chance.random() < 0.3
        due_ms = begun_ms + chance.choice([-DAY_MS, 1_000, DAY_MS]) if state == 2 else None
        deliveries = chance.choice([0, 1, 3]) if state != 2 else 0
        enqueued_ms = begun_ms - AGE_MS + number % 1_000
        found.append(
            message(
                number,
                state=state,
                is_dead=is_dead,
                deliveries=deliveries,
                due_ms=due_ms,
                enqueued_ms=enqueued_ms,
            )
        )
    return found


@pytest.mark.long
async def test_nothing_is_lost_or_doubled_when_the_bridge_is_killed(start_bridge: Any) -> None:
    """A run that is in doubt sends the same again, until it is answered; and behind it all."""
    bridge = start_bridge()
    source = spread(600)
    async with remote(bridge, patience=Patience(total_s=WAIT_S)) as namespace:
        management = await namespace.management(KILLED)
        await management.hold(RUN)
        cut = transfers(source)
        done = 0

        async def import_all() -> None:
            nonlocal done
            imports: RemoteSender | None = None
            while done < len(cut):
                try:
                    if imports is None:
                        imports = await namespace.sender(KILLED, import_run=RUN)
                    await imports.send(cut[done])
                except RemoteRefused:
                    raise
                except RemoteError:
                    imports = None
                    continue
                done += 1

        importing = asyncio.create_task(import_all())
        for share in (0.2, 0.5, 0.8):
            await until(lambda share=share: done >= share * len(cut) or importing.done())
            await asyncio.to_thread(bridge.restart)
        await importing
        imports = await namespace.sender(KILLED, import_run=RUN)
        for transfer in cut:
            await imports.send(transfer)

        by_number = {number_of(each): each for each in source}
        dead = {each for each in by_number if by_number[each].annotation_values.get(DEAD_LETTER)}
        found = await peeked_at_last(namespace, KILLED, set(by_number) - dead)
        found |= await peeked_at_last(namespace, KILLED + DEAD, dead)
        for number, each in found.items():
            came = by_number[number]
            assert each.data == came.data
            assert each.state == came.state
            if came.state != "scheduled":
                assert enqueued(each) == enqueued(came)
                assert each.delivery_count == came.delivery_count

        await management.release(RUN)
        due = {
            number
            for number, each in by_number.items()
            if each.state == "scheduled"
            and (each.annotation_values["x-opt-scheduled-enqueue-time"] < now_ms() + DAY_MS // 2)
        }
        active = {number for number in set(by_number) - dead if by_number[number].state == "active"}
        receiver = await namespace.receiver(KILLED, "receive-and-delete")
        got: list[RemoteMessage] = []
        while len(got) < len(active) + len(due):
            more = await receiver.receive(250, WAIT_S)
            assert more, f"{len(got)} of {len(active) + len(due)} came"
            got += [each.message for each in more]
        assert await receiver.receive(1, 3.0) == []
        assert sorted(int(each.data) for each in got) == sorted(active | due)
        for each in got:
            if int(each.data) in active:
                assert number_of(each) == int(each.data)
            else:
                assert number_of(each) > max(by_number)
        dead_receiver = await namespace.receiver(KILLED + DEAD, "receive-and-delete")
        there = {number for number in dead if by_number[number].state == "active"}
        gone = [each.message for each in await take(dead_receiver, len(there))]
        assert sorted(map(number_of, gone)) == sorted(there)
        assert await dead_receiver.receive(1, 3.0) == []
        deferred = sorted(
            number for number in set(by_number) - dead if by_number[number].state == "deferred"
        )
        taken = await management.receive_deferred(deferred, "receive-and-delete")
        assert [number_of(each.message) for each in taken] == deferred


async def test_what_falls_due_during_the_hold_is_active_when_it_ends(bridge: Any) -> None:
    """Also what was due at the source already."""
    async with remote(bridge) as namespace:
        management = await namespace.management(DUE)
        await management.hold(RUN)
        imports = await namespace.sender(DUE, import_run=RUN)
        for first in (1, 101):
            delays = [-DAY_MS, -1, 500, 8_000]
            await imports.send(
                [
                    message(first + at, state=2, due_ms=now_ms() + delays[at % len(delays)])
                    for at in range(8)
                ]
            )
        numbers = [*range(1, 9), *range(101, 109)]
        await peeked_at_last(namespace, DUE, numbers)
        await management.release(RUN)
        receiver = await namespace.receiver(DUE, "receive-and-delete")
        got = [each.message for each in await take(receiver, len(numbers))]
        assert sorted(int(each.data) for each in got) == numbers
        assert sorted(map(number_of, got)) == list(range(109, 125))


async def test_what_cannot_be_kept_is_refused_by_condition(bridge: Any) -> None:
    """By its first message that can't be; the others of its transfer are not stored."""
    async with remote(bridge, patience=Patience(total_s=0)) as namespace:
        management = await namespace.management(REFUSING)
        with pytest.raises(RemoteError, match="is not held by the migration 'run-1'"):
            await namespace.sender(REFUSING, import_run=RUN)
        await management.hold(RUN)

        async def refused(*messages: RemoteMessage) -> RemoteError:
            sender = await namespace.sender(REFUSING, import_run=RUN)
            with pytest.raises(RemoteError) as caught:
                await sender.send(messages)
            await sender.close()
            return caught.value

        imports = await namespace.sender(REFUSING, import_run=RUN)
        first = [message(5), message(9)]
        await imports.send(first)
        await imports.send(first)
        for numbers in ([5], [8], [10, 9], [11, 11]):
            error = await refused(*(message(each, text="another") for each in numbers))
            assert error.condition == "com.microsoft:argument-out-of-range"
            assert "is not above" in str(error)
        error = await refused(*(message(each) for each in range(20, 121)))
        assert error.condition == "com.microsoft:argument-out-of-range"
        for bad in (
            RemoteMessage.of(data=b"bare"),
            message(30, state=3),
            message(30, state=2),
            message(30, state=2, due_ms=now_ms(), is_dead=True),
            message(-1),
        ):
            assert (await refused(bad)).condition == "amqp:invalid-field"
        assert sorted(await peeked_at_last(namespace, REFUSING, [5, 9])) == [5, 9]
        await management.release(RUN)
        with pytest.raises(RemoteError, match="is not held by the migration 'run-1'"):
            await imports.send([message(40)])
        with pytest.raises(RemoteNotFound):
            await management.receive_deferred([40])
        with pytest.raises((RemoteRefused, RemoteConnectionLost)):
            await namespace.sender(REFUSING, import_run="no name!")


async def test_copies_of_a_topic_are_imported_past_the_rules(bridge: Any) -> None:
    """Each into one subscription, in any state; the topic goes on behind them all."""
    async with remote(bridge) as namespace:
        topic = await namespace.management(TOPIC)
        both = [await namespace.management(each) for each in (ONE, TWO)]
        await topic.hold(RUN)
        imports = await namespace.sender(TOPIC, import_run=RUN)
        with pytest.raises(RemoteError, match="'import-topic/Subscriptions/one' is not held by"):
            await imports.send([message(3, subscription="one", topics_number=10)])
        for each in both:
            await each.hold(RUN)
        imports = await namespace.sender(TOPIC, import_run=RUN)
        for each in (topic, *both):
            assert await each.last_numbers(RUN) == [(0, False)]
        transfer = [
            message(3, subscription="one", topics_number=10, deliveries=2),
            message(40, subscription="two", topics_number=10),
            message(7, subscription="one", topics_number=2**40, state=1),
            message(41, subscription="two", topics_number=2**40 + 5, is_dead=True, text="dead"),
            message(2**40 + 9, state=2, due_ms=now_ms() + DAY_MS),
        ]
        for _ in range(2):
            await imports.send(transfer)
        lasts = [await each.last_numbers(RUN) for each in (topic, *both)]
        assert lasts == [[(2**40 + 9, True)], [(7, True)], [(41, True)]]
        found = await peeked_at_last(namespace, ONE, [3, 7])
        assert [(each.state, each.delivery_count) for each in found.values()] == [
            ("active", 2),
            ("deferred", 0),
        ]
        assert found[3].enqueued_sequence_number == 10
        await peeked_at_last(namespace, TWO, [40])
        dead = await peeked_at_last(namespace, TWO + DEAD, [41])
        assert dead[41].data == b"dead"
        await peeked_at_last(namespace, TOPIC, [2**40 + 9])
        for each in (topic, *both):
            await each.release(RUN)
            with pytest.raises(RemoteRefused, match="is not held by"):
                await each.last_numbers(RUN)
        await (await namespace.sender(TOPIC)).send([RemoteMessage.of(data=b"new")])
        receiver = await namespace.receiver(ONE, "receive-and-delete")
        got = [each.message for each in await take(receiver, 2)]
        assert [(number_of(each), each.data) for each in got] == [(3, b"3"), (8, b"new")]
        assert got[1].enqueued_sequence_number == 2**40 + 10
        (deferred,) = await both[0].receive_deferred([7], "receive-and-delete")
        assert deferred.message.data == b"7"
        receiver = await namespace.receiver(TWO, "receive-and-delete")
        (alone,) = await take(receiver, 1)
        assert (number_of(alone.message), alone.message.data) == (40, b"40")
        receiver = await namespace.receiver(TWO + DEAD, "receive-and-delete")
        (lost,) = await take(receiver, 1)
        assert number_of(lost.message) == 41
        await topic.cancel([2**40 + 9])


async def test_messages_of_sessions_keep_their_sessions_and_numbers(bridge: Any) -> None:
    """In each shard; one without a session is refused."""
    async with remote(bridge) as namespace:
        management = await namespace.management(SESSIONS)
        await management.hold(RUN)
        imports = await namespace.sender(SESSIONS, import_run=RUN)
        ids = ["a", "b", "c", "d", "e"]
        transfer = [
            message(10 * (at + 1), session_id=session_id, state=state)
            for at, (session_id, state) in enumerate([(each, 0) for each in ids * 2] + [("a", 1)])
        ]
        await imports.send(transfer)
        await peeked_at_last(namespace, SESSIONS, [10 * (at + 1) for at in range(11)])
        with pytest.raises(RemoteError, match=r"(?i)session"):
            await imports.send([message(500)])
        await management.release(RUN)
        for at, session_id in enumerate(ids):
            accepted = await namespace.session_receiver(SESSIONS, session_id)
            got = await take(accepted, 2)
            assert [number_of(each.message) for each in got] == [10 * (at + 1), 10 * (at + 6)]
            await accepted.settle_all(got, Complete())
            if session_id == "a":
                (aside,) = await management.receive_deferred(
                    [110], "receive-and-delete", session_id=session_id
                )
                assert aside.message.data == b"110"
            await accepted.close()
