"""Sessions drained by the engines of one bridge and of two, of an entity with 1 shard and with 4.

No client and no gateway: what limits is an owner, RabbitMQ, or the machine.

    python -m tests.bench.session_shards [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator

from bridge.broker.handover import Publish
from bridge.broker.node.installation import Installation
from bridge.engine.clock import now_ms
from bridge.model.entity import Queue
from bridge.topology import names
from bridge.topology.shards import queue_key, shard_of
from bridge.wire import headers
from bridge.wire.basic import Properties, long, text
from tests.bench.figure import Figure, report
from tests.bench.rabbit import Bench, bench, fill, installations

SESSIONS = 400
OF_EACH = 100
BODY = b"x" * 1_024
SHARDS = (1, 4)
BRIDGES = (1, 2)


def main() -> int:
    """Run and report."""
    figures = asyncio.run(_all())
    return 0 if report("Shards of sessions", figures) else 1


async def _all() -> list[Figure]:
    figures: list[Figure] = []
    for installation in installations(sys.argv[1:]):
        for bridges in BRIDGES:
            rates = [await _rate(installation, bridges, shards) for shards in SHARDS]
            figures += [
                Figure(
                    name=f"{SESSIONS} sessions of {OF_EACH}, {bridges} bridges: {shards} shards",
                    unit="msg/s",
                    ours=rate,
                    rabbitmq=version,
                )
                for shards, (rate, version) in zip(SHARDS, rates, strict=True)
            ]
    return figures


async def _rate(installation: Installation, bridges: int, shards: int) -> tuple[float, str]:
    queue = Queue(
        name="sessions",
        requires_session=True,
        session_shards=shards,
        lock_duration_ms=300_000,
        folds_session_ids=True,
    )
    async with bench(installation) as rabbit:
        await rabbit.declare(queue)
        await fill(await rabbit.connection.channel(), list(_messages(queue)))
        drains = [await _start(rabbit, shards) for _ in range(bridges)]
        for each in drains:
            await _line(each)
        await asyncio.sleep(12)  # shards go to the bridges that are to own them
        for each in drains:
            assert each.stdin is not None
            each.stdin.write(b"\n")
        done = [await _line(each) for each in drains]
        await asyncio.gather(*(each.wait() for each in drains))
    print(json.dumps({"shards": shards, "bridges": done}), file=sys.stderr, flush=True)
    count = sum(each["count"] for each in done)
    assert count == SESSIONS * OF_EACH, f"{count} messages"
    first_s = min(each["first_s"] for each in done if each["count"])
    return count / (max(each["last_s"] for each in done) - first_s), rabbit.version


def _messages(queue: Queue) -> Iterator[Publish]:
    """Yield messages as a sequencer publishes them."""
    exchange, at_ms = names.active_exchange(queue.name), now_ms()
    for number in range(1, SESSIONS * OF_EACH + 1):
        session_id = f"s{number % SESSIONS}"
        table = {
            headers.SEQUENCE_NUMBER: long(number),
            headers.ENQUEUED_TIME: long(at_ms),
            headers.IDENTITY: ("x", number.to_bytes(20, "big")),
            headers.SESSION_ID: text(session_id),
        }
        properties = Properties(headers=table, delivery_mode=2, message_id=str(number))
        key = queue_key(queue, shard_of(queue, session_id))
        yield Publish(exchange, key, properties.encode(), BODY)


async def _start(rabbit: Bench, shards: int) -> Process:
    port = rabbit.node.endpoint.hosts[0][1]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.session_drain"),
        *(f"amqp://guest:guest@127.0.0.1:{port}/%2f", rabbit.node.management_url, str(OF_EACH)),
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, "SESSIONS_SHARDS": str(shards)},
    )


async def _line(process: Process) -> dict[str, float]:
    assert process.stdout is not None
    async with asyncio.timeout(300):
        return dict(json.loads(await process.stdout.readline()))


if __name__ == "__main__":
    sys.exit(main())
