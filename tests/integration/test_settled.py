"""What a client was told to be completed stays so when the bridge is killed at that moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from bridge.broker.channel import Channel
from bridge.broker.endpoint import Endpoint, parse_url
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.integration.door import open_door, until

ORDERS = model.Queue(name="orders", lock_duration_ms=60_000)
COUNT = 25


async def complete_and_die(url: str, management_url: str) -> None:
    """Complete everything, some at once and some one by one; die at the last answer."""
    async with open_door(parse_url(url), management_url, ORDERS) as door:
        await door.send(*(str(number) for number in range(COUNT)))
        received = await door.client().receive(COUNT)
        await asyncio.gather(*(door.complete(each) for each in received[::2]))
        for each in received[1::2]:
            await door.complete(each)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("attempt", range(3))
async def test_a_completed_message_does_not_come_back(
    broker: Broker, vhost: str, endpoint: Endpoint, confirming: Channel, attempt: int
) -> None:
    """The bridge dies by SIGKILL right after the answers; RabbitMQ has nothing left."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, broker.url_of(vhost), broker.management_url
    )
    assert await process.wait() == -signal.SIGKILL

    async def is_gone() -> bool:
        return (await confirming.declare_queue("orders", passive=True)).consumers == 0

    await until(is_gone)
    assert (await confirming.declare_queue("orders", passive=True)).messages == 0


if __name__ == "__main__":
    asyncio.run(complete_and_die(*sys.argv[1:]))
