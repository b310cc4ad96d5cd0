"""A topic with 200 subscriptions of SQL filters, two of which match, beside these two alone.

What is measured is what the sequencer publishes a second: 1 KiB messages from the inbox to the two
subscriptions' queues and the journal, each with a number in either subscription.

    python -m tests.bench.fanout [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import os
import sys

from bridge.broker.handover import Publish
from bridge.broker.node.installation import Installation
from bridge.model.entity import Rule, SqlFilter, Subscription, Topic
from bridge.topology import names
from bridge.wire import envelope
from bridge.wire.basic import Properties, table_of
from bridge.wire.envelope import Item, Operation
from tests.bench.figure import Figure, compare, report
from tests.bench.rabbit import Bench, Sidecar, bench, fill, installations, rate_of

ROUNDS = 5
MESSAGES = 20_000
DEADLINE_S = 120.0
SUBSCRIPTIONS = 200
MATCHING = 2
FLOOR = 0.25

BODY = bytes(1024)
PROPERTIES = Properties(
    delivery_mode=2,
    message_id="1234",
    type="order",
    headers=table_of({"store": "s1", "quantity": MATCHING, "region": "eu"}),
).encode()

COMPARED = "quantity > {n} AND region < 'f' AND sys.Label LIKE 'ord%'"
EQUAL = "store = 's1' AND quantity > {n}"
APART = "store = '{other}' AND quantity > {n}"


def main() -> int:
    """Run and report; 1 when a figure is below its floor."""
    figures = asyncio.run(_all(installations(sys.argv[1:])))
    return 0 if report("Fan-out", figures) else 1


async def _all(found: list[Installation]) -> list[Figure]:
    figures: list[Figure] = []
    for installation in found:
        async with bench(installation) as rabbit:
            figures += await _rates(rabbit)
    return figures


async def _rates(rabbit: Bench) -> list[Figure]:
    alone = topic("alone", [COMPARED.format(n=n) for n in range(MATCHING)])
    compared = topic("compared", [COMPARED.format(n=n) for n in range(SUBSCRIPTIONS)])
    indexed = topic(
        "indexed",
        [
            (EQUAL if n < MATCHING else APART).format(n=0, other=f"t{n}")
            for n in range(SUBSCRIPTIONS)
        ],
    )
    samples: dict[str, list[float]] = {each.name: [] for each in (alone, compared, indexed)}
    for each in (alone, compared, indexed):
        await rabbit.declare(each)
    for _ in range(ROUNDS):
        for each in (alone, compared, indexed):
            samples[each.name].append(await _rate(rabbit, each))
    return [
        compare(
            f"{SUBSCRIPTIONS} subscriptions, {MATCHING} match: {what}",
            "msg/s",
            samples[name],
            samples["alone"],
            peer="alone",
            floor=FLOOR,
            rabbitmq=rabbit.version,
        )
        for name, what in (("compared", "comparisons and LIKE"), ("indexed", "equalities"))
    ]


def topic(name: str, expressions: list[str]) -> Topic:
    """Return a topic with a subscription for each SQL filter."""
    subscriptions = tuple(
        Subscription(
            topic=name,
            name=f"s{n}",
            incarnation=f"{name}-{n}",
            rules=(Rule(name="r", filter=SqlFilter(expression=expression)),),
        )
        for n, expression in enumerate(expressions)
    )
    return Topic(name=name, subscriptions=subscriptions)


async def _rate(rabbit: Bench, entity: Topic) -> float:
    """Return how many messages a second arrive in the second of the subscriptions that match."""
    channel = await rabbit.connection.channel()
    await fill(channel, [_enveloped(entity.name) for _ in range(MESSAGES)])
    sidecar = await Sidecar.start(rabbit.node, entity)
    last = names.active_queue(entity.subscriptions[MATCHING - 1].path)
    rate = await rate_of(rabbit.connection, last, MESSAGES, DEADLINE_S)
    await sidecar.stop()
    for each in entity.subscriptions[:MATCHING]:
        await channel.declarations.delete_queue(names.active_queue(each.path))
    await channel.close()
    await rabbit.declare(entity)
    return rate


def _enveloped(name: str) -> Publish:
    body = envelope.encode(Operation.SEND, os.urandom(16), [Item(PROPERTIES, BODY)])
    return Publish("", names.inbox(name), envelope.SILENT_PROPERTIES, body)


if __name__ == "__main__":
    sys.exit(main())
