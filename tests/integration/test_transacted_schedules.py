"""Messages that transactions schedule, on a real RabbitMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Received
from bridge.model import entity as model
from bridge.model.errors import MessageNotFound, TransactionRolledBack
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door
from tests.integration.transacting import TransactionClient, member

ORDERS = model.Queue(name="orders", lock_duration_ms=60_000)
HOUR_MS = 3_600_000


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue."""
    async with member(endpoint, broker.management_url, ORDERS) as opened:
        yield opened


async def peeked(door: Door, start: int = 0) -> dict[int, tuple[str, bool]]:
    """Return what a peek shows: by number, the body, and whether it is scheduled."""
    found: list[Received] = await door.namespace.peek(door.path, start, 100, None)
    assert [each.sequence_number for each in found] == sorted(
        each.sequence_number for each in found
    )
    return {each.sequence_number: (each.record.body.decode(), each.is_scheduled) for each in found}


async def test_what_a_transaction_schedules_is_there_with_its_commit_under_its_numbers(
    door: Door,
) -> None:
    """Whatever was numbered meanwhile; and it is cancelled by these numbers."""
    await door.send("before")
    transaction = TransactionClient(door)
    numbers = await transaction.schedule("a", "b", "c", after_ms=HOUR_MS)
    assert numbers == [2, 3, 4]
    await door.send("meanwhile")
    plain = {1: ("before", False), 5: ("meanwhile", False)}
    assert await peeked(door) == plain
    transaction.sends, transaction.cancels = ["sent"], [3]
    await transaction.commit()
    plain[6] = ("sent", False)
    assert await peeked(door) == {**plain, 2: ("a", True), 4: ("c", True)}
    assert await peeked(door, 3) == {4: ("c", True), 5: plain[5], 6: plain[6]}
    await door.namespace.cancel_scheduled(door.path, [2])
    with pytest.raises(MessageNotFound):
        await door.namespace.cancel_scheduled(door.path, [3])
    assert await peeked(door) == {**plain, 4: ("c", True)}
    await until(lambda: not door.namespace._supervisor.waits.sentences())


async def test_it_becomes_active_at_its_time_and_not_before_the_commit(door: Door) -> None:
    """Also what was due before: at once, with a number behind all others."""
    late, soon = TransactionClient(door), TransactionClient(door)
    assert await late.schedule("late", after_ms=-1_000) == [1]
    assert await soon.schedule("soon", after_ms=2_000) == [2]
    await door.send("sent")
    client = door.client()
    (sent,) = await client.receive()
    assert (sent.record.body, sent.sequence_number) == (b"sent", 3)
    await late.commit()
    await soon.commit()
    found = await client.receive(2)
    assert [(each.record.body, each.sequence_number) for each in found] == [
        (b"late", 4),
        (b"soon", 5),
    ]
    await door.complete(sent, *found)
    assert await peeked(door) == {}


async def test_a_rollback_leaves_nothing_but_a_gap(door: Door) -> None:
    """Also a commit that is refused; the next leader gives no number again."""
    transaction, refused = TransactionClient(door), TransactionClient(door)
    assert await transaction.schedule("never", after_ms=HOUR_MS) == [1]
    transaction.verbs.release([])
    assert await refused.schedule("never", after_ms=HOUR_MS) == [2]
    refused.cancels = [99]
    with pytest.raises(TransactionRolledBack, match="99"):
        await refused.commit()
    assert await peeked(door) == {}
    (leader,) = door.sidecar.leading
    leader.leave("a test")
    await until(lambda: leader not in door.sidecar.leading and bool(door.sidecar.leading))
    await door.send("next")
    assert await peeked(door) == {3: ("next", False)}


async def test_what_is_scheduled_and_cancelled_in_one_transaction_alone_is_nothing(
    door: Door,
) -> None:
    """The commit has nothing to carry out."""
    transaction = TransactionClient(door)
    transaction.cancels = await transaction.schedule("never", after_ms=HOUR_MS)
    await transaction.commit()
    assert await peeked(door) == {}
