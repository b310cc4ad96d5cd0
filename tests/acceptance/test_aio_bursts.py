"""More calls at once on one client of the asyncio SDK than a link has credit.

Such a client may write a request again while it waits for credit. What it asked for is done once.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from tests.acceptance.sdk import now
from tests.acceptance.test_aio import client_of

# What this client opens again under load it may leave open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Find what was left open here, not in a later test."""
    yield
    gc.collect()


ENTITIES: dict[str, dict[str, object]] = {
    name: {} for name in ("bursts-schedule", "bursts-send", "bursts-deferred")
}

REQUESTS = 150
"""More than 100, the credit of other nodes, and within what a pool of workers has at once."""

SENDS = 1_100
"""More than the credit of a sender's link."""

EACH = 100
"""Messages asked for at a time."""


async def peeked(receiver: ServiceBusReceiver) -> list[str]:
    """Return the bodies of all messages that an entity has."""
    found: list[ServiceBusReceivedMessage] = []
    at = 1
    while page := await receiver.peek_messages(EACH, sequence_number=at):
        found += page
        at = (page[-1].sequence_number or 0) + 1
    return [str(message) for message in found]


async def test_many_schedules_and_cancels_at_once(bridge: Any) -> None:
    """Each message is scheduled once, and each cancel that worked says so."""
    due = now() + timedelta(hours=1)
    async with client_of(bridge) as client, client.get_queue_sender("bursts-schedule") as sender:
        numbers = await asyncio.gather(
            *(
                sender.schedule_messages(ServiceBusMessage(str(each)), due)
                for each in range(REQUESTS)
            )
        )
        async with client.get_queue_receiver("bursts-schedule") as receiver:
            assert Counter(await peeked(receiver)) == Counter(map(str, range(REQUESTS)))
            assert sorted(number for (number,) in numbers) == list(range(1, REQUESTS + 1))

            await asyncio.gather(*(sender.cancel_scheduled_messages(each) for each in numbers))

            assert await peeked(receiver) == []


@pytest.mark.long
async def test_many_sends_at_once(bridge: Any) -> None:
    """Each message is stored once."""
    async with client_of(bridge) as client, client.get_queue_sender("bursts-send") as sender:
        await asyncio.gather(
            *(sender.send_messages(ServiceBusMessage(str(each))) for each in range(SENDS))
        )
        async with client.get_queue_receiver("bursts-send") as receiver:
            assert Counter(await peeked(receiver)) == Counter(map(str, range(SENDS)))


async def test_many_receives_of_deferred_messages_at_once(bridge: Any) -> None:
    """Each deferred message is received once, by the call that asked for it."""
    async with client_of(bridge) as client:
        async with client.get_queue_sender("bursts-deferred") as sender:
            await sender.send_messages([ServiceBusMessage(str(each)) for each in range(REQUESTS)])
        async with client.get_queue_receiver("bursts-deferred") as receiver:
            numbers: list[int] = []
            while len(numbers) < REQUESTS:
                for message in await receiver.receive_messages(EACH, max_wait_time=10):
                    assert message.sequence_number is not None
                    numbers.append(message.sequence_number)
                    await receiver.defer_message(message)

            received = await asyncio.gather(
                *(receiver.receive_deferred_messages(each) for each in numbers)
            )

            assert [[message.sequence_number for message in each] for each in received] == [
                [number] for number in numbers
            ]
            for each in received:
                await receiver.complete_message(each[0])
            assert await peeked(receiver) == []
