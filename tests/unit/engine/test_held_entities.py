"""Health names the runs that hold entities."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.engine.forwarding.forwarder import Forwarder
from bridge.engine.forwarding.forwarding import Forwarding
from bridge.engine.held_entities import HeldEntities
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology.entity_table import EntityTable


def test_each_run_has_a_sentence_until_it_holds_nothing() -> None:
    """It names some of its entities, and counts the rest."""
    table, held = EntityTable(), HeldEntities()
    names = [f"Q{number}" for number in range(7)]
    now: dict[str, model.Entity | None] = {
        name.lower(): model.Queue(name=name, held="b") for name in names
    }
    now["alone"] = model.Queue(name="alone", held="a")
    now["free"] = model.Queue(name="free")
    changes = table.apply(now)
    assert changes is not None
    held.follow(changes)
    first, second = held.sentences
    assert first.startswith("The migration 'a' holds 'alone': nothing is sent")
    assert second.startswith("The migration 'b' holds 'Q0', 'Q1', 'Q2', 'Q3', 'Q4' and 2 more: ")
    gone = dict.fromkeys(now.keys() - {"alone"})
    ended = table.apply({"alone": model.Queue(name="alone"), **gone})
    assert ended is not None
    held.follow(ended)
    assert held.sentences == []


async def test_a_source_that_is_held_has_no_forwarder() -> None:
    """What it has stays there until the hold ends."""

    def make(path: EntityPath, entity: model.ReceiveEntity) -> Forwarder:
        raise RuntimeError(f"{path} has a forwarder")

    table, forwarding = EntityTable(), Forwarding(make, pytest.fail)
    forwarding.lead("orders")
    source = model.Queue(name="orders", forward_to="bills", held="run")
    held = table.apply({"orders": source})
    assert held is not None
    forwarding.follow(held)
    ended = table.apply({"orders": replace(source, held="")})
    assert ended is not None
    with pytest.raises(RuntimeError, match="orders has a forwarder"):
        forwarding.follow(ended)
