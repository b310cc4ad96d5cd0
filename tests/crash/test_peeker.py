"""The bridge is killed under load while somebody peeks at full speed; receivers notice nothing."""

from __future__ import annotations

import random
import time

import pytest

from tests.crash.siege import Siege, clients
from tests.fixtures.bridge import StartBridge

pytestmark = pytest.mark.kills

FEW, MANY = 3, 20


def besiege(start_bridge: StartBridge, kills: int) -> str:
    """Kill the bridge so many times; nothing is lost, no number twice, no count changed."""
    siege = Siege(start_bridge())
    chance = random.Random(kills)
    with siege.under_load(), clients("peek", siege.bridge, "p"):
        for _ in range(kills):
            time.sleep(chance.uniform(0.2, 2))
            siege.kill()
            siege.bridge.start()
            siege.progress()
    return siege.judge()


def test_kills_beside_a_peeker(start_bridge: StartBridge) -> None:
    """Pages stay in order, and messages too."""
    besiege(start_bridge, FEW)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_twenty_kills_beside_a_peeker(start_bridge: StartBridge) -> None:
    """The same, twenty times."""
    print(besiege(start_bridge, MANY))
