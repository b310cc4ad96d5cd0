"""Two bridges on one RabbitMQ, clients on both; one of them is killed again and again."""

from __future__ import annotations

import pytest

from tests.crash.siege import Siege
from tests.crash.test_kills import random_kills
from tests.fixtures.bridge import StartBridge

pytestmark = pytest.mark.kills


def test_one_of_two_bridges_is_killed(start_bridge: StartBridge) -> None:
    """The other bridge goes on; the events of both are checked as one history."""
    siege = Siege(start_bridge(), start_bridge())
    random_kills(siege, 3)
    siege.judge()


@pytest.mark.soak
def test_one_of_two_bridges_is_killed_fifteen_times(start_bridge: StartBridge) -> None:
    """The same for longer."""
    siege = Siege(start_bridge(), start_bridge())
    random_kills(siege, 15)
    siege.judge()
