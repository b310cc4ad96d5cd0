"""The RabbitMQ behind commands that move messages is stopped, and started again."""

from __future__ import annotations

import pytest

from tests.crash.moving_commands import drawn, play
from tests.crash.stage import Stage, restart_rabbitmq

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(("seed", "name"), drawn(restart_rabbitmq))
def test_what_a_command_moves_while_rabbitmq_restarts_is_in_one_place(
    lone_stage: Stage, name: str, seed: int
) -> None:
    """It waits for a while, or says how to go on."""
    play(lone_stage, restart_rabbitmq, name, seed)
