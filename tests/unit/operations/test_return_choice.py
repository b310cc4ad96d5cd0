"""Which entities come back from a migration's target, and why others do not."""

from __future__ import annotations

from dataclasses import replace

from bridge.model import entity as model
from bridge.operations.migration.last_copied import LastCopied
from bridge.operations.migration.plan import MigrationSide
from bridge.operations.migration.return_choice import ReturnChoice, choose
from bridge.operations.migration.state_counts import StateCounts

OFF = model.EntityStatus.DISABLED
MADE = "1970-01-01T00:00:10Z"
SAID_MS = 20_000


def side(
    *queues: model.Queue,
    audit: model.EntityStatus = model.EntityStatus.ACTIVE,
    extra: int | None = None,
) -> MigrationSide:
    """A namespace of queues and a topic; `extra` is a subscription, with so many messages."""
    subscriptions = [model.Subscription(topic="events", name="audit", status=audit)]
    if extra is not None:
        subscriptions.append(model.Subscription(topic="events", name="extra"))
    events = model.Topic(name="events", subscriptions=tuple(subscriptions))
    counted = {"events/subscriptions/extra": StateCounts(counts={"active": extra or 0})}
    namespace = model.Namespace(queues=queues, topics=(events,))
    return MigrationSide(tier=model.Tier.STANDARD, namespace=namespace, counted=counted)


def chosen(
    here: MigrationSide,
    there: MigrationSide,
    *,
    returned: str = "",
    unrecorded: str = "",
    made: str = MADE,
) -> ReturnChoice:
    """What comes back of all that the source has, which a run has copied."""
    meant = set(here.by_path())
    recorded = {
        path: (LastCopied(path=path, lasts={}, is_returned=path == returned), SAID_MS)
        for path in meant
        if path != unrecorded
    }
    created = dict.fromkeys(there.by_path(), made)
    return choose(here, there, meant, recorded, created, {})


ORDERS = model.Queue(name="Orders")
OTHER = model.Queue(name="other")


def paths(found: ReturnChoice) -> list[str]:
    """What comes back."""
    return [each.path for each in found.coming]


def test_all_that_was_copied_and_is_there_comes_back() -> None:
    """With nothing said."""
    found = chosen(side(ORDERS), side(ORDERS))
    assert (paths(found), found.refused, found.is_in_part) == (["Orders", "events"], [], False)


def test_one_that_cannot_come_back_is_named_and_keeps_no_other() -> None:
    """It has no record, is gone, or takes no messages at one side."""
    found = chosen(side(ORDERS, OTHER), side(ORDERS, OTHER), unrecorded="orders")
    assert (paths(found), found.is_in_part) == (["other", "events"], True)
    assert found.refused == ["orders: no run that has come to its end has copied it."]
    found = chosen(side(ORDERS, OTHER), side(OTHER))
    assert (paths(found), found.is_in_part) == (["other", "events"], True)
    assert found.refused == ["Orders: it is not at the target."]
    assert not chosen(side(ORDERS), side(), unrecorded="orders").is_in_part
    off = replace(ORDERS, status=OFF)
    for here, there, name in (
        (off, ORDERS, "source"),
        (ORDERS, off, "target"),
        (off, off, "source"),
    ):
        found = chosen(side(here), side(there))
        assert paths(found) == ["events"]
        assert [f"Orders: it is Disabled at the {name}: " in each for each in found.refused] == [
            True
        ]


def test_a_topic_stays_with_a_subscription_that_cannot_come_back() -> None:
    """Its messages would come to the source in part."""
    found = chosen(side(ORDERS, audit=OFF), side(ORDERS))
    assert paths(found) == ["Orders"]
    assert found.refused[0].startswith("events/Subscriptions/audit: it is Disabled at the source")


def test_what_the_target_alone_has_is_counted_where_it_has_messages() -> None:
    """A subscription, and an entity of its own."""
    found = chosen(side(), side(extra=3))
    assert (found.stranded, found.is_in_part) == ({"events/Subscriptions/extra": 3}, True)
    assert paths(found) == ["events"]
    found = chosen(side(), side(extra=0))
    assert (found.stranded, found.is_in_part) == ({}, False)


def test_one_that_has_come_back_is_told_by_the_note_and_not_by_its_status() -> None:
    """Made anew at the target it is another one, which no run has copied."""
    off = replace(ORDERS, status=OFF)
    for there in (ORDERS, off):
        found = chosen(side(ORDERS), side(there), returned="orders")
        assert [each.path for each in found.returned] == ["Orders"]
        assert found.refused == []
    found = chosen(side(ORDERS), side(ORDERS), returned="orders", made="1970-01-01T00:00:30Z")
    assert (found.returned, paths(found)) == ([], [])
    assert found.refused[0].startswith("orders: ")
