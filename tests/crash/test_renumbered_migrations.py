"""`migrate run --renumber` while anything is killed: each copy stands once beside the others."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from bridge.operations.migration.copy_effects import CopyPlace
from bridge.operations.migration.renumbered_message import RENUMBERED, peeked_copy
from tests.acceptance.two_bridges import config
from tests.crash.migration_runs import move, receive_all
from tests.crash.migration_stage import (
    PLACES,
    QUEUES,
    TOPIC,
    Messages,
    MovedMessage,
    MovedSide,
    await_filled,
    begun_stage,
    fill,
    without_scheduled,
)
from tests.crash.stage import DEAD
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.timeout(900), pytest.mark.kills]

RUNS = 20


async def _split(side: MovedSide) -> tuple[Messages, Messages]:
    """Return the copies by their old numbers, and the target's own messages."""
    copies: Messages = {path: {} for path in PLACES}
    own: Messages = {path: {} for path in PLACES}
    async with side.namespace() as namespace:
        for path in PLACES:
            start = 1
            while page := await namespace.management_of(path).peek(start, 250):
                for each in page:
                    number = each.sequence_number or 0
                    start = max(start, number + 1)
                    mark = each.application_property_values.get(RENUMBERED)
                    if mark is None:
                        own[path][number] = MovedMessage.of(each)
                        continue
                    run = str(mark).partition("/")[0]
                    place = CopyPlace(path=path, is_dead=path.endswith(DEAD), renumbered_by=run)
                    found = peeked_copy(each, place)
                    assert found.number not in copies[path], f"{path} has {found.number} twice"
                    copies[path][found.number] = MovedMessage.of(found.message)
    return copies, own


def split(side: MovedSide) -> tuple[Messages, Messages]:
    """Return the same."""
    return asyncio.run(_split(side))


@pytest.mark.parametrize("seed", range(RUNS))
def test_all_stand_once_beside_the_targets_own_while_anything_is_killed(
    own_brokers: list[Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """At instants by chance; the same command goes on where the target is."""
    target = config(tmp_path, "target", QUEUES, TOPIC)
    with begun_stage(own_brokers, tmp_path, monkeypatch, target) as stage:
        stage.chance = random.Random(f"renumbering {seed}")
        stage.options = ("--renumber",)
        for side in (stage.source, stage.target):
            fill(side.bridge)
        before, own = await_filled(stage.source), await_filled(stage.target)
        move(stage)
        told = "\n".join(stage.told)
        print(told)
        try:
            eventually(lambda: split(stage.target) == (before, own), within_s=30.0)
        except AssertionError:
            assert split(stage.target) == (before, own), told
        assert stage.source.messages() == without_scheduled(before), told
        assert stage.target.marks() == [], told
        asyncio.run(receive_all(stage.target, stage.target.messages()))
