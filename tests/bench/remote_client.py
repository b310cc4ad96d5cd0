"""One scenario of `bridge.remote` against a server; prints its rate as JSON.

python -m tests.bench.remote_client CONNECTION_STRING QUEUE SCENARIO COUNT
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Complete
from bridge.remote.sender import RemoteSender
from tests.bench.sdk_client import BATCH, BODY

WAIT_S = 10.0
CREDIT = 300
"""Messages that come ahead, where a scenario receives and settles at the same time."""


async def send_batches(sender: RemoteSender, count: int, at_once: int = 1) -> None:
    """Send `count` messages in batches of 100, several of them under way."""
    batch = [RemoteMessage.of(data=BODY)] * BATCH
    left = count // BATCH

    async def send() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await sender.send(batch)

    await asyncio.gather(*(send() for _ in range(at_once)))


async def batched(namespace: RemoteNamespace, queue: str, count: int) -> float:
    """Messages a second, in batches of 100, one after the other."""
    return await _send(namespace, queue, count, 1)


async def batched_4(namespace: RemoteNamespace, queue: str, count: int) -> float:
    """The same with four batches under way."""
    return await _send(namespace, queue, count, 4)


async def _send(namespace: RemoteNamespace, queue: str, count: int, at_once: int) -> float:
    sender = await namespace.sender(queue)
    await send_batches(sender, BATCH)
    begin = time.perf_counter()
    await send_batches(sender, count, at_once)
    return count / (time.perf_counter() - begin)


async def receive_100(namespace: RemoteNamespace, queue: str, count: int) -> float:
    """Receive 100, complete them, again."""
    await send_batches(await namespace.sender(queue), count + BATCH, 4)
    receiver = await namespace.receiver(queue)
    await receiver.settle_all(await receiver.receive(BATCH, WAIT_S), Complete())
    done, begin = 0, time.perf_counter()
    while done < count:
        found = await receiver.receive(BATCH, WAIT_S)
        if not found:
            break
        await receiver.settle_all(found, Complete())
        done += len(found)
    return done / (time.perf_counter() - begin)


async def receive_ahead(namespace: RemoteNamespace, queue: str, count: int) -> float:
    """The same with messages that come ahead, and one batch that is settled meanwhile."""
    await send_batches(await namespace.sender(queue), count + CREDIT, 4)
    receiver = await namespace.receiver(queue, credit=CREDIT)
    done, begin = 0, time.perf_counter()
    settling: asyncio.Task[None] | None = None
    while done < count:
        found: list[RemoteDelivery] = await receiver.receive(BATCH, WAIT_S)
        if not found:
            break
        if settling is not None:
            await settling
        settling = asyncio.create_task(receiver.settle_all(found, Complete()))
        done += len(found)
    if settling is not None:
        await settling
    return done / (time.perf_counter() - begin)


SCENARIOS: dict[str, Callable[[RemoteNamespace, str, int], Awaitable[float]]] = {
    "batched": batched,
    "batched-4": batched_4,
    "receive-100": receive_100,
    "receive-ahead": receive_ahead,
}


async def run(connection: str, queue: str, scenario: str, count: int) -> None:
    """Run the scenario."""
    credential = credential_in(connection)
    assert credential is not None
    async with RemoteNamespace(RemoteAddress.of(connection), credential) as namespace:
        print(json.dumps({"rate": await SCENARIOS[scenario](namespace, queue, count)}))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
