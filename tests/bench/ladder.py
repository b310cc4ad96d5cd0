"""The peer for schedules: kombu's native delayed delivery, 28 quorum queues with a TTL of 2^n s."""

from __future__ import annotations

import time
from collections.abc import Sequence

import kombu
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    calculate_routing_key,
    declare_native_delayed_delivery_exchanges_and_queues,
    level_name,
)

from bridge.broker.connection.channel import Channel
from bridge.broker.handover import Publish
from bridge.wire.basic import Properties
from tests.bench.rabbit import fill

QUEUE = "ladder"
TOP = level_name(27)


def declare(url: str) -> None:
    """Declare the ladder and a target queue, by kombu itself."""
    with kombu.Connection(url) as connection:  # type: ignore[attr-defined]
        declare_native_delayed_delivery_exchanges_and_queues(connection, "quorum")
        exchange = kombu.Exchange(QUEUE, type="topic")  # type: ignore[attr-defined]
        arguments = {"x-queue-type": "quorum"}
        queue = kombu.Queue(QUEUE, exchange, routing_key=QUEUE, queue_arguments=arguments)  # type: ignore[attr-defined]
        queue.bind(connection.channel()).declare()
        bind_queue_to_native_delayed_delivery_exchange(connection, queue)


async def publish(channel: Channel, dues_ms: Sequence[int], size: int) -> None:
    """Publish messages for these times, as exactly as whole seconds allow, and never early.

    A message says in a header when it is due: so many whole seconds after it was published.
    """
    for start in range(0, len(dues_ms), 100):
        publishes = []
        for wanted_ms in dues_ms[start : start + 100]:
            now_ms = int(time.time() * 1000)
            countdown_s = max(1, -(-(wanted_ms - now_ms) // 1000))
            due_ms = now_ms + countdown_s * 1000
            properties = Properties(delivery_mode=2, headers={"due": ("l", due_ms)}).encode()
            key = calculate_routing_key(countdown_s, QUEUE)
            publishes.append(Publish(TOP, key, properties, bytes(size)))
        await fill(channel, publishes)
