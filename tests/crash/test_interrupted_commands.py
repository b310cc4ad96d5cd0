"""Commands that move messages are interrupted twice at any byte, and given again."""

from __future__ import annotations

import pytest

from tests.crash.moving_commands import drawn, play
from tests.crash.stage import Stage, interrupt

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(("seed", "name"), drawn(interrupt))
def test_what_a_command_moves_that_is_stopped_at_once_is_in_one_place(
    stage: Stage, name: str, seed: int
) -> None:
    """It waits for no answer, and the message that it may have moved is named."""
    play(stage, interrupt, name, seed)
