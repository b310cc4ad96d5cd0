"""Relays' copies into a whole bridge: kills, cuts of batches and outages number nothing twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.remote.errors import RemoteError
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.patience import Patience
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.relay_source import copy_annotations
from tests.acceptance.test_remote import remote
from tests.fixtures.waiting import until

SOURCE = "one.servicebus.windows.net/orders"
QUEUE, DETECTING, TOPIC = "relay-queue", "relay-detecting", "relay-topic"
WAIT_S = 120.0

ENTITIES = {
    QUEUE: {},
    DETECTING: {"RequiresDuplicateDetection": True},
}
TOPICS = [{"Name": TOPIC, "Subscriptions": [{"Name": "audit"}]}]


def copy_of(number: int, lowest: int = 0) -> RemoteMessage:
    """Return a copy of the source's message of this number; all have one MessageId."""
    return RemoteMessage.of(
        data=str(number).encode(),
        properties=MessageProperties(message_id=f"id-{number}"),
        annotations=copy_annotations(number, 1_000 + number, lowest),
    )


def batches(numbers: list[int], lowest: int = 0) -> list[list[RemoteMessage]]:
    """Cut numbers, in any order, into batches of any size."""
    chance = random.Random(len(numbers))
    chance.shuffle(numbers)
    found = []
    while numbers:
        size = chance.choice([1, 1, 3, 40, 130])
        found.append([copy_of(each, lowest) for each in numbers[:size]])
        del numbers[:size]
    return found


async def copied(namespace: RemoteNamespace, entity: str) -> Counter[int]:
    """Peek all messages; return how often each of the source is there."""
    management = await namespace.management(entity)
    found: Counter[int] = Counter()
    numbers: set[int] = set()
    next_number = 1
    while page := await management.peek(next_number, 250):
        found.update(int(each.data) for each in page)
        numbers.update(each.sequence_number or 0 for each in page)
        for each in page:
            assert not any("source" in str(name) for name in each.annotation_values)
            assert each.application_property_values == {}
        next_number = max(each.sequence_number or 0 for each in page) + 1
    assert len(numbers) == found.total()
    return found


async def counted(namespace: RemoteNamespace, entity: str, count: int) -> Counter[int]:
    """Return what was copied, when so many messages are there."""
    async with asyncio.timeout(WAIT_S):
        while (found := await copied(namespace, entity)).total() < count:
            pass
    return found


@pytest.mark.parametrize(
    ("target", "shown"),
    [(QUEUE, QUEUE), (DETECTING, DETECTING), (TOPIC, f"{TOPIC}/Subscriptions/audit")],
)
async def test_what_is_copied_again_in_other_batches_is_numbered_once(
    bridge: Any, target: str, shown: str
) -> None:
    """Twice by one relay, and by another one at once."""
    async with remote(bridge) as first, remote(bridge) as second:
        senders = [await each.sender(target, relay_source=SOURCE) for each in (first, second)]
        assert all(each.knows_source for each in senders)
        sends = [
            each.send(batch)
            for each in (*senders, senders[0])
            for batch in batches(list(range(1, 301)))
        ]
        await asyncio.gather(*sends)
        await senders[0].send(
            [RemoteMessage.of(data=b"400", annotations=copy_annotations(400, 5_000, 301))]
        )
        await senders[1].send(batches(list(range(1, 301)))[0])
        found = await counted(first, shown, 301)
        assert found == Counter([*range(1, 301), 400])


@pytest.mark.parametrize(
    ("target", "died"),
    [
        (QUEUE, f"{QUEUE}/$DeadLetterQueue"),
        (TOPIC, f"{TOPIC}/Subscriptions/audit/$DeadLetterQueue"),
    ],
)
async def test_a_copy_that_another_relay_has_told_as_gone_is_a_dead_letter_once(
    start_bridge: Any, target: str, died: str
) -> None:
    """Two namespaces by one name: what the one's relay tells loses nothing of the other's.

    Once, however often it comes again, behind a kill of the bridge, too; and it is counted.
    """
    bridge = start_bridge()
    too_late = [3, 5, 8]
    async with remote(bridge, patience=Patience(total_s=WAIT_S)) as namespace:
        one = await namespace.sender(target, relay_source=SOURCE)
        await one.send([copy_of(900, 900)])
        other = await namespace.sender(target, relay_source=SOURCE)
        await other.send([copy_of(each) for each in too_late])
        management = await namespace.management(died)

        async def dead() -> list[RemoteMessage]:
            return list(await management.peek(1, 250))

        async def are_all_dead() -> bool:
            return len(await dead()) >= len(too_late)

        await until(are_all_dead)
        counts = [
            each.value
            for family in text_string_to_metric_families(bridge.get("/metrics"))
            for each in family.samples
            if each.name == "busbridge_copies_too_late_total" and each.labels["entity"] == target
        ]
        assert counts == [len(too_late)]
        await asyncio.to_thread(bridge.restart)
        again = await namespace.sender(target, relay_source=SOURCE)
        await again.send([copy_of(each) for each in (8, 5, 3)])
        await (await namespace.sender(target, relay_source=SOURCE)).send([copy_of(1_000, 950)])
        await again.send([copy_of(each) for each in too_late])
        await again.send([copy_of(1_001)])
        shown = died.removesuffix("/$DeadLetterQueue")
        assert await counted(namespace, shown, 3) == Counter([900, 1_000, 1_001])
        found = await dead()
        assert sorted(int(each.data) for each in found) == too_late
        for each in found:
            assert each.dead_letter_reason == "RelayedTooLate"
            assert "repl-sequence" in str(each.application_property_values)


async def test_nothing_is_lost_or_doubled_when_the_bridge_is_killed(start_bridge: Any) -> None:
    """A relay that is in doubt sends again, cut otherwise; before and behind a takeover."""
    bridge = start_bridge()
    async with remote(bridge, patience=Patience(total_s=WAIT_S)) as namespace:
        sender = await namespace.sender(QUEUE, relay_source=SOURCE)
        waiting = set(range(1, 1_201))

        async def copy_all() -> None:
            while waiting:
                for batch in batches(sorted(waiting)):
                    try:
                        await sender.send(batch)
                    except RemoteError as error:
                        if not error.in_doubt:
                            raise
                        break
                    waiting.difference_update(int(each.data) for each in batch)

        for left in (900, 500, 100):
            copying = asyncio.create_task(copy_all())
            await until(lambda left=left: len(waiting) < left)
            await asyncio.to_thread(bridge.restart)
            await copying if left == 100 else copying.cancel()
        for batch in batches(list(range(1, 1_201))):
            await sender.send(batch)
        assert await counted(namespace, QUEUE, 1_200) == Counter(range(1, 1_201))


@pytest.mark.long
async def test_100_000_unsettled_copies_are_known_after_an_outage(start_bridge: Any) -> None:
    """The relay was away, and could complete none of them: all come again, to a new leader."""
    bridge = start_bridge()
    count, size = 100_000, 500
    async with remote(bridge, patience=Patience(total_s=WAIT_S)) as namespace:

        async def copy_all() -> float:
            sender = await namespace.sender(QUEUE, relay_source=SOURCE)
            begun_s = time.monotonic()
            for first in range(1, count + 1, 10 * size):
                await asyncio.gather(
                    *(
                        sender.send([copy_of(each) for each in range(at, at + size)])
                        for at in range(first, first + 10 * size, size)
                    )
                )
            return time.monotonic() - begun_s

        first_s = await copy_all()
        await asyncio.to_thread(bridge.restart)
        again_s = await copy_all()
        marker = RemoteMessage.of(data=b"0")
        await (await namespace.sender(QUEUE)).send([marker])
        management = await namespace.management(QUEUE)
        async with asyncio.timeout(WAIT_S):
            while not (last := await management.peek(count + 1, 1)):
                pass
        assert [each.data for each in last] == [b"0"], "its number is behind 100,000 others"
        assert await management.peek(count + 2, 1) == []
        families = text_string_to_metric_families(bridge.get("/metrics"))
        (took,) = (
            each.value
            for family in families
            for each in family.samples
            if each.name == "busbridge_takeover_seconds" and each.labels.get("entity") == QUEUE
        )
        print(f"copied in {first_s:.1f} s, again in {again_s:.1f} s, takeover {took:.2f} s")
        assert took < 60
