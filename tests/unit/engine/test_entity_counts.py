"""Counts by RabbitMQ's own figures: what nobody knows is no zero."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bridge.broker.errors import BrokerSilent
from bridge.broker.management.api import Figures
from bridge.broker.ready_counts import ReadyCounts
from bridge.engine.entity_counts import Answers, queues_of
from bridge.model import entity as model
from bridge.topology import names

ORDERS, EVENTS = model.Queue(name="orders"), model.Topic(name="events")
AUDIT = model.Subscription(topic="events", name="audit")


def answers() -> Answers:
    """What is known while another bridge gives no answer: RabbitMQ's figures."""
    queues = [*queues_of(ORDERS), *queues_of(AUDIT)]
    return Answers(
        ReadyCounts(cast(Any, None)),
        missing={names.deferred_queue(ORDERS.path), names.deferred_queue(AUDIT.path)},
        figures={name: Figures(2, 10) for name in queues},
    )


@pytest.mark.parametrize("entity", [ORDERS, EVENTS])
def test_scheduled_messages_that_nobody_counts_are_not_zero(entity: model.Entity) -> None:
    """The bridge that gives no answer may lead the entity, and have a thousand."""
    with pytest.raises(BrokerSilent):
        answers().by_figures(entity)


def test_figures_are_told_where_the_rest_is_known() -> None:
    """A subscription has no scheduled messages; of a queue its leader has said."""
    found = answers()
    found.scheduled["orders"] = 7
    assert found.by_figures(ORDERS).scheduled == 7
    assert found.by_figures(ORDERS).dead_letter == 2
    assert found.by_figures(AUDIT).dead_letter == 2


def test_the_size_of_an_entity_with_messages_is_not_zero() -> None:
    """RabbitMQ's figures of bytes are some seconds old, its counts are not."""
    found = answers()
    found.scheduled["orders"] = 7
    assert found.by_figures(ORDERS).size_bytes == 10 * len(queues_of(ORDERS))
    found.figures = {name: Figures(2, 0) for name in queues_of(ORDERS)}
    counts = found.by_figures(ORDERS)
    assert counts.size_bytes == counts.total > 0
