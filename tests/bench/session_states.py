"""What sessions cost that have a state and nothing else: the engine's memory and processor time.

python -m tests.bench.session_states [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator

from bridge.broker.handover import Publish
from bridge.broker.management.api import Management
from bridge.engine.api import ReceiveMode
from bridge.engine.clock import now_ms
from bridge.engine.namespace import RabbitNamespace
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.topology.shards import shard_of
from bridge.wire.sessions import state_properties
from tests.bench.figure import Figure, report
from tests.bench.rabbit import Bench, bench, fill, installations
from tests.bench.resident_memory import memory_mb
from tests.bench.session_bridge import QUEUE

SESSIONS = 10_000
STATE = b"x" * 100
IDLE_S = 20.0
KB_MAX = 3.0
CORE_MAX = 0.05
"""A session may take so much memory, and all of them so much of a core, beside what none take."""


def main() -> int:
    """Run and report; 1 when a figure is on the wrong side of its bound."""
    figures = asyncio.run(_all())
    return 0 if report("Idle sessions", figures) else 1


async def _all() -> list[Figure]:
    figures: list[Figure] = []
    for installation in installations(sys.argv[1:]):
        async with bench(installation) as rabbit:
            await rabbit.declare(QUEUE)
            none_mb, none_core = await _idle(rabbit, 0)
            await fill(await rabbit.connection.channel(), list(_states()))
            some_mb, some_core = await _idle(rabbit, SESSIONS)
        each_kb = (some_mb - none_mb) * 1024 / SESSIONS
        what = f"{SESSIONS:,} sessions with a state of {len(STATE)} bytes"
        figures += [
            Figure(
                name=f"{what}: memory of each",
                unit="KB",
                ours=each_kb,
                ratio=each_kb,
                floor=KB_MAX,
                is_ceiling=True,
                rabbitmq=rabbit.version,
            ),
            Figure(
                name=f"{what}: processor time, beside none",
                unit="% core",
                ours=100 * some_core,
                peer="none",
                peers=100 * none_core,
                ratio=some_core - none_core,
                floor=CORE_MAX,
                is_ceiling=True,
                rabbitmq=rabbit.version,
            ),
        ]
    return figures


async def _idle(rabbit: Bench, expected: int) -> tuple[float, float]:
    """Own all sessions; return the memory then, and the part of a core while nothing is done."""
    path = EntityPath(QUEUE.name)
    async with Management(rabbit.node.endpoint, rabbit.node.management_url) as management:
        namespace = RabbitNamespace(rabbit.node.endpoint, management)
        await namespace.start()
        await namespace.apply(model.Namespace(queues=(QUEUE,)))
        receiver = await namespace.accept_session(
            path,
            "s1",
            mode=ReceiveMode.PEEK_LOCK,
            deliver=lambda received: None,
            on_lost=lambda error: None,
            timeout_s=60,
        )
        await receiver.close()
        listed = await namespace.list_sessions(path, updated_after_ms=None, skip=0, top=SESSIONS)
        assert len(listed) == expected, f"{len(listed)} sessions"
        gc.collect()
        taken_mb, begun_s, processor_s = memory_mb(), time.perf_counter(), time.process_time()
        await asyncio.sleep(IDLE_S)
        core = (time.process_time() - processor_s) / (time.perf_counter() - begun_s)
        await namespace.close()
    return taken_mb, core


def _states() -> Iterator[Publish]:
    for number in range(SESSIONS):
        session_id = f"s{number}"
        queue = names.sessions_queue(QUEUE.path, shard_of(QUEUE, session_id))
        yield Publish("", queue, state_properties(session_id, now_ms()), STATE)


if __name__ == "__main__":
    sys.exit(main())
