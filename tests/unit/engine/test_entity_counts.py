"""Counts by RabbitMQ's own figures: what nobody knows is no zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from bridge.broker.errors import BrokerSilent
from bridge.broker.management.api import Figures
from bridge.broker.ready_counts import ReadyCounts
from bridge.engine.entity_counts import Answers, queues_of, transfer_queues
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


def test_only_of_entities_with_transactions_the_queues_of_transfers_are_asked_for() -> None:
    """What is held counts by RabbitMQ's figures; a queue that is not made yet has nothing."""
    assert not transfer_queues(ORDERS) + transfer_queues(EVENTS) + transfer_queues(AUDIT)
    assert not transfer_queues(replace(AUDIT, transactional=True))
    for entity in (replace(ORDERS, transactional=True), replace(EVENTS, transactional=True)):
        waits, refused = transfer_queues(entity)
        assert {waits, refused} <= set(queues_of(entity))
        found = answers()
        found.held[entity.path], found.scheduled[entity.path] = (0, 0, 0), 0
        found.ready.known = dict.fromkeys(queues_of(entity), 0) | {waits: 1}
        found.missing = {*found.missing, refused}
        assert found.figures is not None
        found.figures = {**found.figures, waits: Figures(3, 10)}
        counts = found.counts(entity)
        assert (counts.transfer, counts.transfer_dead_letter) == (3, 0)


def test_the_size_of_an_entity_with_messages_is_not_zero() -> None:
    """RabbitMQ's figures of bytes are some seconds old, its counts are not."""
    found = answers()
    found.scheduled["orders"] = 7
    assert found.by_figures(ORDERS).size_bytes == 10 * len(queues_of(ORDERS))
    found.figures = {name: Figures(2, 0) for name in queues_of(ORDERS)}
    counts = found.by_figures(ORDERS)
    assert counts.size_bytes == counts.total > 0
