"""The RabbitMQ behind commands that move messages is killed."""

from __future__ import annotations

import pytest

from tests.crash.moving_commands import drawn, play
from tests.crash.stage import Stage, kill_rabbitmq

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(("seed", "name"), drawn(kill_rabbitmq))
def test_what_a_command_moves_while_rabbitmq_is_killed_is_in_one_place(
    lone_stage: Stage, name: str, seed: int
) -> None:
    """Also what was answered before the kill, and is undone by it."""
    play(lone_stage, kill_rabbitmq, name, seed)
