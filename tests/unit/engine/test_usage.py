"""What a bridge remembers of the uses of temporary entities."""

from __future__ import annotations

import pickle
from typing import Any, cast

from bridge.engine.administration.usage import Usage
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology.entity_table import EntityTable

IDLE_MS = 300_000


async def test_nothing_stays_of_the_uses_of_subscriptions_that_are_gone() -> None:
    """Memory does not grow with temporary subscriptions that come and go beside one that stays."""
    table, usage = EntityTable(), Usage(cast(Any, _Services()), lambda: (), lambda: 1)

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


class _Services:
    sender = locks = None
