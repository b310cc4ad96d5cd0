"""The connections of commands that move messages are cut at any byte."""

from __future__ import annotations

import pytest

from tests.crash.moving_commands import drawn, play
from tests.crash.stage import Stage, cut

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(("seed", "name"), drawn(cut))
def test_what_a_command_moves_whose_connection_ends_is_in_one_place(
    stage: Stage, name: str, seed: int
) -> None:
    """It goes on by itself, or says how to."""
    play(stage, cut, name, seed)
