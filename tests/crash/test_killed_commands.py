"""Commands that move messages are killed at any byte, and given again."""

from __future__ import annotations

import json
import random

import pytest

from tests.crash.moving_commands import (
    RED,
    UNTOLD,
    begin_purge,
    drawn,
    play,
    receive_dead_letters,
    undo_to_the_end,
)
from tests.crash.stage import Stage, kill

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(("seed", "name"), drawn(kill))
def test_what_a_killed_command_moves_is_in_one_place(stage: Stage, name: str, seed: int) -> None:
    """Each message is there once, with a number of its own."""
    play(stage, kill, name, seed)


@pytest.mark.kills
@pytest.mark.parametrize("seed", range(4))
def test_what_somebody_receives_behind_a_killed_purge_is_not_put_back(
    stage: Stage, seed: int
) -> None:
    """Nobody knows of a message in hand who has removed it: it is named, and not sent."""
    stage.chance = random.Random(f"received {seed}")
    begin_purge(stage, kill)
    received = receive_dead_letters(stage)
    undone = undo_to_the_end(stage)
    back = {body for path, _, body in stage.ledger() if path == "source"}
    assert not back & received, stage.told
    unsure = {each["message_id"].replace("-", " ") for each in undone.rows if "message_id" in each}
    assert back | received | unsure >= set(RED), stage.told
    assert not back & unsure, json.dumps(stage.told, indent=1)


@pytest.mark.kills
@pytest.mark.parametrize("name", UNTOLD)
def test_where_copies_have_no_identity_those_in_hand_may_be_twice_and_none_is_lost(
    untold_stage: Stage, name: str
) -> None:
    """As Azure takes them."""
    play(untold_stage, kill, name, 0)
