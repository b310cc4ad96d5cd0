"""How few policies 1,000 entities of 6 kinds need, and what a change then costs the broker.

The peer is one policy for each entity, for a tenth of them, on the same queues in the same run.
`creates` is the processor time that RabbitMQ takes to make one queue of settings in use beside
1,000 entities; its peer is the same beside 10. It is done in a virtual host that is the bridge's
alone, with a floor, and in a shared one, where the policies list 20 random digits an entity.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import sys
import time
from dataclasses import replace

from bridge.broker.management.api import Management
from bridge.engine.administration.policies import Policies
from bridge.engine.administration.provision import provide
from bridge.model.entity import Namespace, Queue
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.definitions import with_entity
from bridge.topology.patterns import escape
from bridge.topology.policy import MEBIBYTE
from bridge.topology.resources import Exchange, Policy, Topology
from bridge.topology.resources import Queue as RabbitQueue
from bridge.topology.rollout import rollout
from bridge.topology.sharing import Sharing
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

FEW = 10
CREATES = 5
TOGETHER = 3
"""Creates of one sample: one takes little more than a tick of the processor's clock."""

CHANNELS = 8
CREATE_RATIO_MAX = 1.2
"""The most that a create may cost RabbitMQ beside 1,000 entities, of its cost beside 10."""

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


def policies_of(
    queues: list[Queue], version: str, live: tuple[Policy, ...] = ()
) -> tuple[Policy, ...]:
    """The policies of a namespace of these queues, where some policies are there."""
    namespace = Namespace(queues=tuple(queues))
    capabilities = Capabilities.of(version)
    return compile_namespace(namespace, capabilities, sharing=Sharing(live=live)).policies


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
    figures: list[Figure] = []
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
        few: dict[bool, list[float]] = {}
        for count in (FEW, ENTITIES):
            async with bench(installation) as rabbit:
                await many(rabbit, count)
                for owns_vhost in (False, True):
                    costs = await creates(rabbit, count, owns_vhost)
                    if count == FEW:
                        few[owns_vhost] = costs
                        continue
                    figures.append(beside(few[owns_vhost], costs, owns_vhost, rabbit.version))
    return 0 if report("Policies", figures) else 1


def beside(few: list[float], many: list[float], owns_vhost: bool, rabbitmq: str) -> Figure:
    """Return the figure of a create beside 1,000 and beside 10 entities."""
    where = "a virtual host of its own" if owns_vhost else "a shared virtual host"
    mine, theirs = statistics.median(many), statistics.median(few)
    return Figure(
        name=f"RabbitMQ's processor, a create beside {ENTITIES}, {where}",
        unit="ms",
        ours=mine,
        peer=f"beside {FEW}",
        peers=theirs,
        ratio=mine / theirs,
        floor=CREATE_RATIO_MAX if owns_vhost else None,
        is_ceiling=True,
        rabbitmq=rabbitmq,
        samples={"ours": many, "few": few},
    )


def crowd(count: int) -> Namespace:
    """Entities of one kind whose names have nothing in common."""
    names = (hashlib.sha256(str(number).encode()).hexdigest()[:20] for number in range(count))
    return Namespace(queues=tuple(Queue(name=each) for each in names))


async def many(rabbit: Bench, count: int) -> None:
    """Declare all resources of a crowd, but bindings, on some channels."""
    topology = compile_namespace(crowd(count), Capabilities.of(rabbit.version))
    resources: list[Exchange | RabbitQueue] = [*topology.exchanges, *topology.queues]

    async def declare(part: list[Exchange | RabbitQueue]) -> None:
        channel = await rabbit.connection.channel()
        for each in part:
            if isinstance(each, Exchange):
                await channel.declarations.declare_exchange(each)
            else:
                await channel.declarations.declare_queue(each)
        await channel.close()

    await asyncio.gather(*(declare(resources[n::CHANNELS]) for n in range(CHANNELS)))


async def creates(rabbit: Bench, count: int, owns_vhost: bool) -> list[float]:
    """Milliseconds of RabbitMQ's processor that single creates take, without what it takes idle."""
    capabilities, namespace = Capabilities.of(rabbit.version), crowd(count)
    wanted = compile_namespace(namespace, capabilities, sharing=Sharing(is_own=owns_vhost))
    costs = []
    async with Management(
        rabbit.node.endpoint, rabbit.node.management_url, timeout_s=TIMEOUT_S
    ) as management:
        for policy in await management.policies():
            await management.delete_policy(policy.name)
        await management.import_definitions(document(Topology(policies=wanted.policies), "/"))
        policies = Policies(management, lambda: namespace, owns_vhost=owns_vhost)
        await policies.put()
        await asyncio.sleep(SETTLE_S)
        begin_s, begin = time.monotonic(), rabbit.cpu_s()
        await asyncio.sleep(SETTLE_S)
        idle = (rabbit.cpu_s() - begin) / (time.monotonic() - begin_s)
        for number in range(CREATES):
            kind = "own" if owns_vhost else "shared"
            made = [Queue(name=f"new-{kind}-{number}-{each}") for each in range(TOGETHER)]
            begin_s, begin = time.monotonic(), rabbit.cpu_s()
            for entity in made:
                channel = await rabbit.connection.channel()
                with policies.making((entity,)), channel:
                    namespace = with_entity(namespace, entity)
                    await provide(
                        *(Namespace(queues=(entity,)), entity, namespace.queues[0]),
                        *(capabilities, policies, management, channel),
                    )
                await policies.put()
            took_s = time.monotonic() - begin_s
            costs.append((rabbit.cpu_s() - begin - idle * took_s) * 1000 / TOGETHER)
    return costs


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
        wanted = policies_of(queues, version, live)
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
