"""Duplicate detection: what it costs the hop, and what 1,000,000 remembered ids cost.

python -m tests.bench.duplicates [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from bridge.broker.handover import Publish
from bridge.broker.node.installation import Installation
from bridge.machine.inbox.accepted_ids import row
from bridge.model.entity import Queue
from bridge.topology import names, parts
from bridge.wire import envelope, journal
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item, Operation
from tests.bench.figure import Figure, compare, report
from tests.bench.rabbit import Bench, Sidecar, bench, fill, installations, rate_of

ROUNDS = 5
MESSAGES = 20_000
DEADLINE_S = 120.0
FLOOR = 0.9

IDS = 1_000_000
SEGMENT = 1_000
MEMORY_MB_MAX = 150.0
READY_S_MAX = 10.0

BODY = bytes(1024)
PROPERTIES = Properties(delivery_mode=2, message_id="1234", content_type="text/plain").encode()


def main() -> int:
    """Run and report; 1 when a figure is on the wrong side of its bound."""
    figures = asyncio.run(_all(installations(sys.argv[1:])))
    return 0 if report("Duplicates", figures) else 1


async def _all(found: list[Installation]) -> list[Figure]:
    figures: list[Figure] = []
    for installation in found:
        async with bench(installation) as rabbit:
            detecting, plain = [], []
            for number in range(ROUNDS):
                detecting.append(await _hop(rabbit, f"detects-{number}", detects=True))
                plain.append(await _hop(rabbit, f"plain-{number}", detects=False))
            figures.append(
                compare(
                    "inbox to active queue, with duplicate detection",
                    "msg/s",
                    detecting,
                    plain,
                    peer="without",
                    floor=FLOOR,
                    rabbitmq=rabbit.version,
                )
            )
            figures += await _remembered(rabbit)
    return figures


async def _hop(rabbit: Bench, name: str, *, detects: bool) -> float:
    queue = Queue(name=name, requires_duplicate_detection=detects)
    await rabbit.declare(queue)
    channel = await rabbit.connection.channel()
    await fill(channel, [_enveloped(name, detects=detects) for _ in range(MESSAGES)])
    sidecar = await Sidecar.start(rabbit.node, queue)
    rate = await rate_of(rabbit.connection, names.active_queue(name), MESSAGES, DEADLINE_S)
    await sidecar.stop()
    for each in (names.inbox(name), names.active_queue(name), names.journal(name)):
        await channel.declarations.delete_queue(each)
    await channel.close()
    return rate


def _enveloped(name: str, *, detects: bool) -> Publish:
    item = Item(PROPERTIES, BODY, digest=os.urandom(envelope.DIGEST_BYTES) if detects else None)
    body = envelope.encode(Operation.SEND, os.urandom(16), [item])
    return Publish("", names.inbox(name), envelope.SILENT_PROPERTIES, body)


async def _remembered(rabbit: Bench) -> list[Figure]:
    """A sequencer that begins with 1,000,000 ids, beside one that begins with none."""
    ready_s, memory_mb = {}, {}
    for count in (0, IDS):
        queue = Queue(name=f"remembers-{count}", requires_duplicate_detection=True)
        await rabbit.declare(queue)
        channel = await rabbit.connection.channel()
        if count:
            await channel.declarations.declare_queue(parts.history(queue.name))
        segments = [_segment(queue.name) for _ in range(count // SEGMENT)]
        for at in range(0, len(segments), 100):
            await fill(channel, segments[at : at + 100])
        await fill(channel, [_enveloped(queue.name, detects=True)])
        begin_s = time.monotonic()
        sidecar = await Sidecar.start(rabbit.node, queue)
        await rate_of(rabbit.connection, names.active_queue(queue.name), 1, DEADLINE_S)
        ready_s[count] = time.monotonic() - begin_s
        memory_mb[count] = sidecar.memory_mb()
        await sidecar.stop()
        await channel.close()
    grown_mb = memory_mb[IDS] - memory_mb[0]
    return [
        _bounded("1,000,000 ids: memory", "MB", grown_mb, MEMORY_MB_MAX, rabbit.version),
        _bounded(
            "1,000,000 ids: start to first number", "s", ready_s[IDS], READY_S_MAX, rabbit.version
        ),
        _bounded("no ids: the same", "s", ready_s[0], READY_S_MAX, rabbit.version),
    ]


def _bounded(name: str, unit: str, ours: float, most: float, version: str) -> Figure:
    return Figure(
        name=name,
        unit=unit,
        ours=ours,
        peer="at most",
        peers=most,
        ratio=ours / most,
        floor=1.0,
        is_ceiling=True,
        rabbitmq=version,
    )


def _segment(name: str) -> Publish:
    now_ms = time.time_ns() // 1_000_000
    rows = b"".join([row(os.urandom(16), number, now_ms) for number in range(SEGMENT)])
    properties = journal.entry_properties(journal.ACCEPTED)
    return Publish(
        "", names.history(name), properties, journal.entry_of(journal.JournalSection.ACCEPTED, rows)
    )


if __name__ == "__main__":
    sys.exit(main())
