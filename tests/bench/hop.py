"""The hop from an inbox to an active queue, beside RabbitMQ's own shovel in the same run.

Both move 1 KiB messages between two quorum queues: publish, confirm, ack. The sequencer also
numbers and stamps each message and writes it into the journal; what that costs is printed beside.

    python -m tests.bench.hop [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import os
import sys

from bridge.broker.handover import Publish
from bridge.broker.node.installation import Installation
from bridge.model.entity import Queue
from bridge.topology import names
from bridge.wire import envelope
from bridge.wire.envelope import Item, Operation
from tests.bench.figure import Figure, compare, report
from tests.bench.rabbit import (
    BODY,
    DEADLINE_S,
    PROPERTIES,
    Bench,
    Sidecar,
    bench,
    fill,
    installations,
    rate_of,
    shovel_rate,
)

ROUNDS = 5
MESSAGES = 40_000
FLOOR = 0.55


def main() -> int:
    """Run and report; 1 when a figure is below its floor."""
    figures = asyncio.run(_all(installations(sys.argv[1:])))
    return 0 if report("Hop", figures) else 1


async def _all(found: list[Installation]) -> list[Figure]:
    figures: list[Figure] = []
    for installation in found:
        async with bench(installation) as rabbit:
            figures += await _hops(rabbit)
    return figures


async def _hops(rabbit: Bench) -> list[Figure]:
    shovel, ours, bare, native = [], [], [], []
    for number in range(ROUNDS):
        shovel.append(await shovel_rate(rabbit, f"shovel-{number}", MESSAGES))
        ours.append(await _sequencer(rabbit, f"hop-{number}"))
        bare.append(await _sequencer(rabbit, f"bare-{number}", has_journal=False))
        native.append(await _sequencer(rabbit, f"native-{number}", is_native=True))
    peer = "shovel"
    return [
        compare(
            "inbox to active queue and journal, one message an envelope",
            "msg/s",
            ours,
            shovel,
            peer=peer,
            floor=FLOOR,
            rabbitmq=rabbit.version,
        ),
        compare(
            "the same, native messages",
            "msg/s",
            native,
            shovel,
            peer=peer,
            floor=FLOOR,
            rabbitmq=rabbit.version,
        ),
        compare(
            "the same without the journal",
            "msg/s",
            bare,
            shovel,
            peer=peer,
            rabbitmq=rabbit.version,
        ),
    ]


async def _sequencer(
    rabbit: Bench, name: str, *, has_journal: bool = True, is_native: bool = False
) -> float:
    queue = Queue(name=name)
    await rabbit.declare(queue)
    channel = await rabbit.connection.channel()
    if not has_journal:
        await channel.declarations.unbind_queue(names.journal(name), names.active_exchange(name))
    publishes = [
        Publish("", names.inbox(name), PROPERTIES, BODY) if is_native else _enveloped(name)
        for _ in range(MESSAGES)
    ]
    await fill(channel, publishes)
    sidecar = await Sidecar.start(rabbit.node, queue)
    rate = await rate_of(rabbit.connection, names.active_queue(name), MESSAGES, DEADLINE_S)
    await sidecar.stop()
    for each in (names.inbox(name), names.active_queue(name), names.journal(name)):
        await channel.declarations.delete_queue(each)
    await channel.close()
    return rate


def _enveloped(name: str) -> Publish:
    body = envelope.encode(Operation.SEND, os.urandom(16), [Item(PROPERTIES, BODY)])
    return Publish("", names.inbox(name), envelope.SILENT_PROPERTIES, body)


if __name__ == "__main__":
    sys.exit(main())
