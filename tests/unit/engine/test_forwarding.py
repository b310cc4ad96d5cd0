"""What forwards messages stays no longer than its entity."""

from __future__ import annotations

import pytest

from bridge.engine.forwarding.forwarding import Forwarding
from bridge.model import entity as model
from bridge.topology.entity_table import EntityTable


def _made() -> Forwarding:
    return Forwarding(
        lambda path, entity: pytest.fail("nothing is led here"),
        lambda front: pytest.fail("there are no transactions here"),
    )


def _kept(forwarding: Forwarding) -> dict[str, object]:
    return {name: kept for name, kept in vars(forwarding).items() if isinstance(kept, dict)}


async def test_nothing_stays_of_a_source_that_is_gone() -> None:
    """Memory does not grow with entities that come and go."""
    table, forwarding = EntityTable(), _made()
    source = model.Queue(name="orders", forward_to="bills")
    for now in (source, None):
        changes = table.apply({"orders": now})
        assert changes is not None
        forwarding.follow(changes)
    assert _kept(forwarding) == _kept(_made())
