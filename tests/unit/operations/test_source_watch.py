"""Whether a source is still: what changes is named with figures, and what has not forwarded all."""

from __future__ import annotations

from bridge.model import entity as model
from bridge.operations.migration.plan import MigrationSide
from bridge.operations.migration.source_watch import changes, others, risen, undrained
from bridge.operations.migration.state_counts import StateCounts


def side(**counted: StateCounts) -> MigrationSide:
    """A namespace of queues; `inbound` forwards its messages, `poor` its dead letters."""
    queues = (
        model.Queue(name="Orders"),
        model.Queue(name="inbound", forward_to="Orders"),
        model.Queue(name="poor", forward_dead_lettered_messages_to="inbound"),
    )
    namespace = model.Namespace(queues=queues)
    return MigrationSide(tier=model.Tier.STANDARD, namespace=namespace, counted=counted)


def counts(transfer: int = 0, **by_state: int) -> StateCounts:
    """Counts of an entity."""
    return StateCounts(counts=by_state, transfer=transfer)  # type: ignore[arg-type]


def test_an_entity_whose_counts_differ_is_named_with_each_state() -> None:
    """As it is written there."""
    before = side(orders=counts(active=5, dead_letter=1), inbound=counts(active=1))
    after = side(orders=counts(active=7, deferred=1, dead_letter=1, transfer=2))
    assert changes(before, after, {"orders"}) == [
        "Orders still changes: 5 active messages became 7, 0 deferred messages became 1, 0 on "
        "their way became 2."
    ]
    assert changes(before, before, {"orders", "inbound"}) == []


def test_what_has_not_forwarded_all_is_named_from_the_beginning_of_its_chain() -> None:
    """Its own dead letters stay where they do not go anywhere."""
    chosen = {"orders", "inbound", "poor"}
    source = side(
        orders=counts(active=9),
        inbound=counts(active=2, transfer=1, dead_letter=4),
        poor=counts(active=1, dead_letter=3),
    )
    assert undrained(source, chosen) == [
        "poor has 3 dead letters to forward to inbound.",
        "inbound has 3 messages to forward to Orders.",
    ]
    assert undrained(source, {"orders"}) == []
    drained = side(inbound=counts(dead_letter=4, scheduled=1), poor=counts(active=1))
    assert undrained(drained, chosen) == []


def test_an_entity_that_has_got_messages_is_named_whatever_their_states() -> None:
    """What was activated, has died or has expired meanwhile is none that has come."""
    before = side(orders=counts(scheduled=2, active=5), inbound=counts(active=1))
    moved = side(orders=counts(active=6, dead_letter=1), inbound=counts())
    assert risen(before, moved, {"orders", "inbound"}) == []
    after = side(orders=counts(active=8), inbound=counts(active=1, transfer=1))
    assert risen(before, after, {"orders", "inbound"}) == [
        "inbound had 1 message, and has 2.",
        "Orders had 7 messages, and has 8.",
    ]
    assert risen(before, after, {"poor"}) == []


def test_entities_that_have_come_or_gone_are_named() -> None:
    """By their paths."""
    assert others({"a", "b"}, {"b", "c"}) == ["c is new.", "a is gone."]
    assert others({"a"}, {"a"}) == []
