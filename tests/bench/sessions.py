"""Many messages in 10,000 sessions: how soon a bridge has them all, and again when it is killed.

What is measured is what a receiver sees: from its accept (or from the kill of the bridge that held
the messages) to the first message of its session.

    python -m tests.bench.sessions [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator

import aiohttp

from bridge.broker.handover import Publish
from bridge.engine.clock import now_ms
from bridge.topology import names
from bridge.topology.shards import queue_key, shard_of
from bridge.wire import headers
from bridge.wire.basic import Properties, long, text
from tests.bench.figure import Figure, report
from tests.bench.rabbit import Bench, bench, fill, installations
from tests.bench.session_bridge import QUEUE

COUNT = int(os.environ.get("SESSIONS_MESSAGES", "60_000"))
SESSIONS = 10_000
CHUNK = 50_000
BODY = b"x" * 1_024
STATISTICS_S = 6.0
AGAIN_S = 5.0
"""So soon 60,000 messages are ready again after a kill; of more only the figure is printed."""


def main() -> int:
    """Run and report; 1 when a figure is on the wrong side of its bound."""
    figures = asyncio.run(_all())
    return 0 if report("Sessions", figures) else 1


async def _all() -> list[Figure]:
    figures: list[Figure] = []
    for installation in installations(sys.argv[1:]):
        async with bench(installation) as rabbit:
            figures += await _measure(rabbit)
    return figures


async def _measure(rabbit: Bench) -> list[Figure]:
    await rabbit.declare(QUEUE)
    channel = await rabbit.connection.channel()
    for start in range(0, COUNT, CHUNK):
        await fill(channel, list(_messages(start, min(start + CHUNK, COUNT))))
    before_mb = await _memory_mb(rabbit)
    first = await _start(rabbit, "s1")
    held = await _line(first)
    held_mb = await _memory_mb(rabbit)
    second = await _start(rabbit, "s2")
    before = await _line(second)
    killed_ms = now_ms()
    first.kill()
    again = await _line(second)
    again_s = (again["at"] - killed_ms) / 1000
    processor_s = again["processor_s"] - before["processor_s"]
    second.kill()
    await asyncio.gather(first.wait(), second.wait())
    few = COUNT <= 60_000
    where, what = rabbit.version, f"{COUNT:,} messages in {SESSIONS:,} sessions"
    return [
        Figure(name=f"{what}: held", unit="s", ours=held["took_s"], rabbitmq=where),
        Figure(
            name=f"{what}: first message after a kill",
            unit="s",
            ours=again_s,
            ratio=again_s if few else None,
            floor=AGAIN_S if few else None,
            is_ceiling=True,
            rabbitmq=where,
        ),
        Figure(
            name=f"{what}: the bridge's processor time for that",
            unit="s",
            ours=processor_s,
            rabbitmq=where,
        ),
        Figure(name=f"{what}: the bridge", unit="MB", ours=held["memory_mb"], rabbitmq=where),
        Figure(
            name=f"{what}: RabbitMQ, before and then",
            unit="MB",
            ours=held_mb,
            peer="before",
            peers=before_mb,
            rabbitmq=where,
        ),
    ]


def _messages(start: int, end: int) -> Iterator[Publish]:
    """Yield messages as a sequencer publishes them."""
    exchange, at_ms = names.active_exchange(QUEUE.name), now_ms()
    for number in range(start + 1, end + 1):
        table = {
            headers.SEQUENCE_NUMBER: long(number),
            headers.ENQUEUED_TIME: long(at_ms),
            headers.IDENTITY: ("x", number.to_bytes(20, "big")),
            headers.SESSION_ID: text(session_id := f"s{number % SESSIONS}"),
        }
        properties = Properties(headers=table, delivery_mode=2, message_id=str(number))
        key = queue_key(QUEUE, shard_of(QUEUE, session_id))
        yield Publish(exchange, key, properties.encode(), BODY)


async def _start(rabbit: Bench, session_id: str) -> Process:
    port = rabbit.node.endpoint.hosts[0][1]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.session_bridge"),
        *(f"amqp://guest:guest@127.0.0.1:{port}/%2f", rabbit.node.management_url, session_id),
        stdout=PIPE,
    )


async def _line(process: Process) -> dict[str, float]:
    assert process.stdout is not None
    async with asyncio.timeout(300):
        return dict(json.loads(await process.stdout.readline()))


async def _memory_mb(rabbit: Bench) -> float:
    """RabbitMQ's memory, by its own figure."""
    await asyncio.sleep(STATISTICS_S)
    login = aiohttp.BasicAuth("guest", "guest")
    url = rabbit.node.management_url.rstrip("/") + "/api/nodes"
    async with aiohttp.ClientSession(auth=login) as session, session.get(url) as answer:
        return float((await answer.json())[0]["mem_used"]) / 1e6


if __name__ == "__main__":
    sys.exit(main())
