"""`migrate run` between two bridges while anything is killed: each message is moved once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.two_bridges import config
from tests.crash.migration_runs import is_over, judge, play
from tests.crash.migration_stage import (
    EarlyReceiver,
    MigrationStage,
    await_filled,
    begun_stage,
    fill,
)
from tests.fixtures.broker import Broker
from tests.fixtures.held_wire import Way
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.timeout(900)

RUNS = 60
SHORT = 3
"""The first ones are part of every check."""


@pytest.fixture
def migration_stage(
    own_brokers: list[Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MigrationStage]:
    """Two bridges, started; the target has nothing."""
    with begun_stage(own_brokers, tmp_path, monkeypatch, config(tmp_path, "target", {})) as stage:
        yield stage


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.long if seed < SHORT else pytest.mark.kills)
        for seed in range(RUNS)
    ],
)
def test_all_are_moved_once_while_bridges_rabbitmqs_and_the_command_are_killed(
    migration_stage: MigrationStage, seed: int
) -> None:
    """At instants by chance; the same command goes on where the target is."""
    migration_stage.chance = random.Random(f"migration {seed}")
    play(migration_stage)


@pytest.mark.long
def test_both_sides_are_the_same_before_anything_is_cancelled_or_received(
    migration_stage: MigrationStage,
) -> None:
    """All is verified, and the command is killed when it asks for the mark of that."""
    stage = migration_stage
    fill(stage.source.bridge)
    before = await_filled(stage.source)
    stage.target.wire.hold_at(b"PUT /busbridge-migrate-", Way.THERE)
    with EarlyReceiver(stage) as receiver:
        run = stage.start()
        eventually(lambda: stage.target.wire.is_held or run.has_ended, "all is verified")
        assert stage.target.wire.is_held, stage.end(run)
        run.process.kill()
        stage.target.wire.cut()
        assert not is_over(stage, run)
        assert stage.differences() == {}
        assert stage.source.messages() == stage.target.messages() == before
        assert is_over(stage, stage.start())
    assert not receiver.early
    judge(stage, before)
