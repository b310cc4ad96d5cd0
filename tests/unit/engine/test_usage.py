"""What a bridge remembers of the uses of entities."""

from __future__ import annotations

import pickle
from typing import Any, cast

from bridge.engine.administration.usage import NOT_LED, Usage
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology.entity_table import EntityTable

IDLE_MS = 300_000


async def test_nothing_stays_of_the_uses_of_subscriptions_that_are_gone() -> None:
    """Memory does not grow with temporary subscriptions that come and go beside one that stays."""
    table, usage = EntityTable(), Usage(cast(Any, _Services()), lambda: 1)

    def change(entity: model.Entity, *, is_gone: bool = False) -> None:
        changes = table.apply({entity.path: None if is_gone else entity})
        assert changes is not None
        usage.follow(changes)

    def subscription(number: int) -> model.Subscription:
        return model.Subscription(
            topic="news", name=f"audit-{number:03}", auto_delete_on_idle_ms=IDLE_MS
        )

    def size() -> int:
        return len(pickle.dumps(vars(usage)["_reports"]))

    change(model.Topic(name="news"))
    stays = subscription(0)
    change(stays)
    usage.note(EntityPath(stays.path))
    before = size()
    for number in range(1, 100):
        change(subscription(number))
        usage.note(EntityPath(subscription(number).path))
        assert size() > before
        change(subscription(number), is_gone=True)
    assert size() == before


def usage_of(*entities: model.Entity, clock: list[int], open_paths: set[str]) -> Usage:
    """Return the uses of these entities; nothing is sent."""
    usage = Usage(cast(Any, _Services()), lambda: clock[0])
    usage.watch(lambda: open_paths)
    changes = EntityTable().apply({each.path: each for each in entities})
    assert changes is not None
    usage.follow(changes)
    return usage


async def test_an_entity_that_is_not_temporary_is_reported_after_ten_minutes() -> None:
    """Its last access is known at once; settlements cost it nothing."""
    clock, open_paths = [1_000_000], set[str]()
    usage = usage_of(model.Queue(name="Jobs"), clock=clock, open_paths=open_paths)
    path = EntityPath("Jobs")
    assert usage.accessed_ms(["Jobs", "nothing"]) == [0, NOT_LED, 0, NOT_LED]
    usage.note(path)
    assert usage.accessed_ms(["Jobs"]) == [0, NOT_LED]
    usage.note_access(path)
    reports = vars(usage)["_reports"]["jobs"]
    clock[0] += 599_999
    assert usage.accessed_ms(["jobs"]) == [1_000_000, NOT_LED]
    assert not reports.is_due(clock[0])
    assert reports.is_due(clock[0] + 1)
    open_paths.add("jobs")
    assert usage.accessed_ms(["Jobs"]) == [clock[0], NOT_LED]


async def test_an_entity_that_becomes_temporary_is_reported_each_minute() -> None:
    """And one that is temporary no more, every ten minutes."""
    clock = [1_000_000]
    usage = usage_of(model.Queue(name="jobs"), clock=clock, open_paths=set())
    usage.note_access(EntityPath("jobs"))
    reports = vars(usage)["_reports"]["jobs"]
    table = EntityTable()
    table.apply({"jobs": model.Queue(name="jobs")})
    for idle_ms, interval_ms in (
        (IDLE_MS, 60_000),
        (model.Queue(name="x").auto_delete_on_idle_ms, 600_000),
    ):
        changes = table.apply({"jobs": model.Queue(name="jobs", auto_delete_on_idle_ms=idle_ms)})
        assert changes is not None
        usage.follow(changes)
        assert reports.interval_ms == interval_ms


class _Services:
    sender = locks = None
