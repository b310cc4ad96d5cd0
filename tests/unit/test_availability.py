"""What an entity refuses: by its status, and while a migration holds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.machine.usage.idleness import is_temporary
from bridge.model import entity as model
from bridge.model.availability import check_run, refusal_of_receives, refusal_of_sends
from bridge.model.duration import MAX_MS
from bridge.model.entity import EntityStatus, Queue, Subscription, Topic
from bridge.model.errors import ArgumentError, EntityDisabled, ServerBusy, ServiceBusError
from bridge.topology import definitions, description

ENTITIES: tuple[model.Entity, ...] = (
    Queue(name="orders"),
    Topic(name="events"),
    Subscription(topic="events", name="audit"),
)


def kinds(entity: model.Entity) -> tuple[type[ServiceBusError] | None, ...]:
    """Return the errors of a send and of a receive."""
    found = refusal_of_sends(entity), refusal_of_receives(entity)
    return tuple(None if each is None else type(each) for each in found)


@pytest.mark.parametrize("entity", ENTITIES)
def test_an_entity_that_is_held_says_who_holds_it(
    entity: model.Entity,
) -> None:
    """To senders that it is busy, to receivers that it is disabled, from which SDKs recover."""
    assert kinds(entity) == (None, None)
    held = replace(entity, held="run-1")
    assert kinds(held) == (ServerBusy, EntityDisabled)
    for refused in (refusal_of_sends(held), refusal_of_receives(held)):
        assert f"'{entity.path}' is held by the migration 'run-1'" in str(refused)
    disabled = replace(held, status=EntityStatus.DISABLED)
    assert kinds(disabled) == (EntityDisabled, EntityDisabled)


def test_a_status_forbids_sends_or_receives() -> None:
    """As before anybody held an entity."""
    queue = Queue(name="orders")
    statuses = (EntityStatus.SEND_DISABLED, EntityStatus.RECEIVE_DISABLED)
    assert [kinds(replace(queue, status=each)) for each in statuses] == [
        (EntityDisabled, None),
        (None, EntityDisabled),
    ]


@pytest.mark.parametrize("entity", ENTITIES)
def test_a_temporary_entity_that_is_held_is_not_deleted(entity: model.Entity) -> None:
    """Nobody can use it meanwhile."""
    temporary = replace(entity, auto_delete_on_idle_ms=MAX_MS // 2)
    assert is_temporary(temporary)
    assert not is_temporary(replace(temporary, held="run"))


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("entity", ENTITIES)
def test_an_entity_that_is_held_is_of_no_kind_to_older_versions(
    entity: model.Entity, folds: bool
) -> None:
    """A bridge that begins meanwhile, and a client, leave it to newer ones."""
    free = replace(entity, folds_session_ids=folds)
    held = replace(free, held="run-1")
    form = definitions.to_json(held)
    assert form["held"] == "run-1"
    known = {definitions.to_json(each)["kind"] for each in (entity, free)}
    assert form["kind"] not in known
    assert definitions.from_json(form) == held
    assert not definitions.unknown_fields(form)
    assert "held" not in definitions.to_json(free)


def test_a_changed_definition_stays_held() -> None:
    """Whoever changes its lock duration does not end a migration's hold."""
    there = Queue(name="orders", held="run-1")
    assert (
        definitions.with_origin(Queue(name="orders", max_delivery_count=3), there).held == "run-1"
    )
    wanted = model.Namespace(queues=(Queue(name="orders"),))
    found = definitions.with_incarnations(wanted, model.Namespace(queues=(there,)))
    assert found.queues[0].held == "run-1"


def test_a_client_of_the_library_is_told_of_a_hold() -> None:
    """It does by itself what a bridge does."""
    raw = description.encode(
        Queue(name="orders", held="run-1"),
        rabbitmq_version="4.3.0",
        rabbitmq_bytes_max=1 << 24,
        is_clustered=False,
        tier=model.Tier.STANDARD,
        is_peeked=False,
        full="",
    )
    assert description.decode(raw).entity.held == "run-1"


@pytest.mark.parametrize("run", ["a", "2026-11-27.orders_1", "x" * 64])
def test_a_run_has_a_name(run: str) -> None:
    """It stands in definitions, in logs and in errors."""
    assert check_run(run) == run


@pytest.mark.parametrize("run", ["", "x" * 65, "a b", "é", "a\n", None, 7, b"run"])
def test_what_is_no_name_of_a_run_is_refused(run: object) -> None:
    """With the characters that it may have."""
    with pytest.raises(ArgumentError, match="1 to 64 letters"):
        check_run(run)
