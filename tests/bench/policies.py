"""How few policies 1,000 entities of 6 kinds need, and what a change then costs the broker.

The peer is one policy for each entity, for a tenth of them, on the same queues in the same run.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from dataclasses import replace

from bridge.broker.management.api import Management
from bridge.model.entity import Namespace, Queue
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.policy import MEBIBYTE, escape
from bridge.topology.resources import Policy, Topology
from bridge.topology.rollout import rollout
from policies.writers.definitions import document
from tests.bench.figure import Figure, compare, report
from tests.bench.rabbit import Bench, bench, installations

ENTITIES = 1_000
KINDS = (
    {"max_delivery_count": 10, "default_message_time_to_live_ms": 3_600_000},
    {"max_delivery_count": 10, "default_message_time_to_live_ms": 86_400_000},
    {"max_delivery_count": 5, "default_message_time_to_live_ms": 3_600_000},
    {"max_delivery_count": 5, "max_size_mb": 5_120},
    {"max_delivery_count": 100, "max_size_mb": 2_048},
    {"max_delivery_count": 1, "default_message_time_to_live_ms": 60_000},
)
CHANGES = 20
SETTLE_S = 5.0
TIMEOUT_S = 300.0

PEERS = 100
"""Queues with a policy each: with all 1,000 a broker did not come to an end in 4 minutes."""


def queue(number: int, name: str, kind: int) -> Queue:
    """One entity."""
    return Queue(name=name.format(number=number, kind=kind), **KINDS[kind])  # type: ignore[arg-type]


def entities(naming: str) -> list[Queue]:
    """1,000 queues: named in families, as deployments do, or with nothing in common at all."""
    kinds = [number % len(KINDS) for number in range(ENTITIES)]
    if naming == "families":
        names = ["shop{kind}/orders-{number:04d}" for _ in kinds]
    else:
        names = [
            hashlib.sha256(str(number).encode()).hexdigest()[:20] for number in range(ENTITIES)
        ]
    return [queue(number, names[number], kind) for number, kind in enumerate(kinds)]


def policies_of(queues: list[Queue], version: str) -> tuple[Policy, ...]:
    """The policies of a namespace of these queues."""
    namespace = Namespace(queues=tuple(queues))
    return compile_namespace(namespace, Capabilities.of(version)).policies


def one_each(queues: list[Queue]) -> tuple[Policy, ...]:
    """What people write: a policy for each queue."""
    return tuple(
        Policy(
            name=f"own.{each.name}",
            pattern=f"^{escape(each.name)}$",
            definition={
                "delivery-limit": each.max_delivery_count - 1,
                "max-length-bytes": each.max_size_mb * MEBIBYTE,
            },
            priority=50,
        )
        for each in queues
    )


async def main() -> int:
    """Measure on every RabbitMQ that is named."""
    figures = []
    for naming in ("families", "nothing in common"):
        begin = time.perf_counter()
        found = policies_of(entities(naming), "4.3")
        took_ms = (time.perf_counter() - begin) * 1000
        name = f"policies for 1,000 entities of 6 kinds, names: {naming}"
        figures.append(Figure(name=name, unit="", ours=len(found), peer="one each", peers=ENTITIES))
        figures.append(Figure(name="  compiled in", unit="ms", ours=took_ms))
    for installation in installations(sys.argv[1:]):
        async with bench(installation) as rabbit:
            figures += await measure(rabbit)
    return 0 if report("Policies", figures) else 1


async def measure(rabbit: Bench) -> list[Figure]:
    """Return the cost of a change on a broker that holds the 1,000 queues."""
    queues = entities("families")
    management = Management(rabbit.node.endpoint, rabbit.node.management_url, timeout_s=TIMEOUT_S)
    channel = await rabbit.connection.channel()
    for each in compile_namespace(
        Namespace(queues=tuple(queues)), Capabilities.of(rabbit.version)
    ).queues:
        if "$" not in each.name:
            await channel.declarations.declare_queue(each)
    try:
        ours = await changes(management, queues, rabbit.version)
        peers = await changes_one_each(management, queues)
    finally:
        await management.close()
    name = "changing one entity's MaxDeliveryCount, 1,000 queues there"
    puts = [sample[1] for sample in ours]
    return [
        compare(
            name,
            "ms",
            [sample[0] for sample in ours],
            peers,
            peer=f"one each for {PEERS}",
            rabbitmq=rabbit.version,
        ),
        Figure(
            name="  requests that it takes",
            unit="",
            ours=sum(puts) / len(puts),
            peer=f"one each for {PEERS}",
            peers=1,
            rabbitmq=rabbit.version,
        ),
    ]


async def changes(
    management: Management, queues: list[Queue], version: str
) -> list[tuple[float, int]]:
    """Milliseconds and requests of single changes with shared policies."""
    live = policies_of(queues, version)
    await management.import_definitions(document(Topology(policies=live), "/"))
    await asyncio.sleep(SETTLE_S)
    samples = []
    for number in range(CHANGES):
        position = number * (ENTITIES // CHANGES)
        queues[position] = replace(queues[position], max_delivery_count=50)
        wanted = policies_of(queues, version)
        steps = rollout(wanted, live, [each.name for each in queues])
        begin = time.perf_counter()
        for step in steps:
            if step.new is not None:
                await management.put_policy(step.new)
            elif step.old is not None:
                await management.delete_policy(step.old.name)
        samples.append(((time.perf_counter() - begin) * 1000, len(steps)))
        live = wanted
    for policy in live:
        await management.delete_policy(policy.name)
    return samples


async def changes_one_each(management: Management, queues: list[Queue]) -> list[float]:
    """Milliseconds of single changes where some of the queues have a policy each."""
    own = one_each(queues)[:PEERS]
    for policy in own:
        await management.put_policy(policy)
    await asyncio.sleep(SETTLE_S)
    samples = []
    for number in range(CHANGES):
        changed = own[number * (PEERS // CHANGES)]
        begin = time.perf_counter()
        await management.put_policy(
            replace(changed, definition={**changed.definition, "delivery-limit": 49})
        )
        samples.append((time.perf_counter() - begin) * 1000)
    return samples


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
