"""How much a queue holds: MaxSizeInMegabytes, of a partitioned entity that of all partitions."""

from __future__ import annotations

import pytest

from bridge.machine.queue.fate import Fate
from bridge.message.end_rules import rules_of
from bridge.model.entity import Queue, Subscription, Topic
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX
from bridge.topology.flavour import queue_settings


@pytest.mark.parametrize(
    ("size_mb", "is_partitioned", "holds_mb"),
    [(1024, False, 1024), (1024, True, 16_384), (5120, True, 81_920), (16_384, True, 16_384)],
)
def test_a_partitioned_entity_holds_what_its_sixteen_partitions_hold(
    size_mb: int, is_partitioned: bool, holds_mb: int
) -> None:
    """A size that was read back from Azure is that of all partitions already.

    Azure reads 16,384 back where 1,024 was given (its Go live test CreateQueue_Standard).
    """
    queue = Queue(name="q", max_size_mb=size_mb, enable_partitioning=is_partitioned)
    topic = Topic(name="t", max_size_mb=size_mb, enable_partitioning=is_partitioned)
    subscription = Subscription(topic="t", name="s")
    for settings in (queue_settings(queue), queue_settings(subscription, topic)):
        assert settings["max-length-bytes"] == holds_mb * 2**20


def test_the_largest_max_delivery_count_is_still_a_limit_of_rabbitmq() -> None:
    """NServiceBus asks for 2^31 - 1; RabbitMQ's limit is one less, and what ends nothing one more.

    A message fails so often in no life: what counts is that every comparison still holds.
    """
    queue = Queue(name="q", max_delivery_count=2**31 - 1)
    limit = queue_settings(queue)["delivery-limit"]

    assert limit == 2**31 - 2 < DELIVERY_LIMIT_MAX
    rules = rules_of(queue)
    assert rules.of_failed(None, 2**31 - 3, 0) is Fate.AVAILABLE
    assert rules.of_failed(None, 2**31 - 2, 0) is Fate.DELIVERY_COUNT_EXCEEDED
    assert rules.of_waiting(None, 2**31 - 2, 0) is Fate.AVAILABLE
    assert rules.of_waiting(None, 2**31 - 1, 0) is Fate.DELIVERY_COUNT_EXCEEDED
    assert rules_of(queue, is_dead_letter=True).of_failed(None, 2**31 - 2, 0) is Fate.AVAILABLE
