"""The bridge of commands that move messages is killed, and started again."""

from __future__ import annotations

import pytest

from tests.crash.moving_commands import drawn, play
from tests.crash.stage import Stage, kill_bridge

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(("seed", "name"), drawn(kill_bridge))
def test_what_a_command_moves_while_the_bridge_is_killed_is_in_one_place(
    stage: Stage, name: str, seed: int
) -> None:
    """Also what was answered before the kill, and is undone by it."""
    play(stage, kill_bridge, name, seed)


@pytest.mark.kills
@pytest.mark.parametrize("seed", range(4))
def test_what_is_undone_behind_a_killed_bridge_is_in_one_place(stage: Stage, seed: int) -> None:
    """Nobody has told what that bridge settled last, and RabbitMQ forgets completions of it."""
    play(stage, kill_bridge, "dead-letter purge, undo", seed)
