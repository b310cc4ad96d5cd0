"""Entities that ever had a transaction: their definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.model import entity as model
from bridge.model.entity import Queue, Subscription, Topic
from bridge.topology import definitions, description

ENTITIES: tuple[model.Entity, ...] = (
    Queue(name="orders"),
    Topic(name="events"),
    Subscription(topic="events", name="audit"),
)


@pytest.mark.parametrize("held", ["", "run-1"])
@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("entity", ENTITIES)
def test_an_entity_that_had_a_transaction_is_of_no_kind_to_older_versions(
    entity: model.Entity, folds: bool, held: str
) -> None:
    """Held or not, and with both kinds of session ids."""
    without = replace(entity, folds_session_ids=folds, held=held)
    had = replace(without, transactional=True)
    form = definitions.to_json(had)
    assert form["transactional"] is True
    known = [
        replace(entity, folds_session_ids=some, held=run) for some in (0, 1) for run in ("", "a")
    ]
    assert form["kind"] not in {definitions.to_json(each)["kind"] for each in known}
    assert definitions.from_json(form) == had
    assert not definitions.unknown_fields(form)
    assert "transactional" not in definitions.to_json(without)


def test_a_changed_definition_stays_transactional() -> None:
    """Whoever changes its lock duration does not undo its transactions."""
    there = Queue(name="orders", transactional=True)
    assert definitions.with_origin(Queue(name="orders", max_delivery_count=3), there).transactional
    wanted = model.Namespace(queues=(Queue(name="orders"),))
    found = definitions.with_incarnations(wanted, model.Namespace(queues=(there,)))
    assert found.queues[0].transactional


def test_a_client_of_the_library_is_told() -> None:
    """As a bridge is by the definition."""
    raw = description.encode(
        Queue(name="orders", transactional=True),
        rabbitmq_version="4.3.0",
        rabbitmq_bytes_max=1 << 24,
        is_clustered=False,
        tier=model.Tier.STANDARD,
        is_peeked=False,
        full="",
    )
    assert description.decode(raw).entity.transactional
