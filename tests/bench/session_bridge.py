"""One bridge's engine in a process of its own: it accepts a session, and the next when it is lost.

    python -m tests.bench.session_bridge URL MANAGEMENT_URL SESSION

Prints a line (JSON) whenever it has one: when (UTC ms), how long it took, its memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from bridge.broker.connection.endpoint import parse_url
from bridge.broker.management.api import Management
from bridge.engine.api import Received, ReceiveMode
from bridge.engine.clock import now_ms
from bridge.engine.namespace import RabbitNamespace
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from tests.bench.resident_memory import memory_mb

SHARDS = int(os.environ.get("SESSIONS_SHARDS", "4"))
QUEUE = model.Queue(
    name="sessions",
    requires_session=True,
    session_shards=SHARDS,
    lock_duration_ms=300_000,
    folds_session_ids=True,
)


async def main(url: str, management_url: str, session_id: str) -> None:
    """Accept until killed."""
    endpoint = parse_url(url)
    async with Management(endpoint, management_url) as management:
        namespace = RabbitNamespace(endpoint, management, session_shards=SHARDS)
        await namespace.start()
        await namespace.apply(model.Namespace(queues=(QUEUE,)))
        while True:
            await _hold(namespace, session_id)


async def _hold(namespace: RabbitNamespace, session_id: str) -> None:
    """Accept a session and have its first message; returns when it is lost."""
    begun = time.perf_counter()
    lost: asyncio.Future[ServiceBusError] = asyncio.get_running_loop().create_future()
    got: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
    receiver = await namespace.accept_session(
        EntityPath(QUEUE.name),
        session_id,
        mode=ReceiveMode.PEEK_LOCK,
        deliver=got.set_result,
        on_lost=lost.set_result,
        timeout_s=300,
    )
    receiver.add_credit(1)
    await got
    event = {"at": now_ms(), "took_s": time.perf_counter() - begun, "memory_mb": memory_mb()}
    print(json.dumps(event | {"processor_s": time.process_time()}), flush=True)
    await lost


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
