"""Fifty kills of a bridge under load beside another: what comes back, and how long nothing comes.

    make soak ARGS="-k fifty_kills -s --rabbitmq=..."

prints what docs/operations.md says of it.
"""

from __future__ import annotations

import random
import statistics
import time

import pytest

from tests.crash.events import Delivered, Settled
from tests.crash.history import came_back
from tests.crash.load import now_ms
from tests.crash.siege import Siege, wait_for
from tests.fixtures.bridge import StartBridge

pytestmark = pytest.mark.kills

KILLS = 50


@pytest.mark.soak
@pytest.mark.timeout(2_400)
def test_fifty_kills(start_bridge: StartBridge) -> None:
    """Answered completions may come back, counted; nothing is lost, no number twice, no gap."""
    siege = Siege(start_bridge(), start_bridge())
    killed, living = siege.bridges
    chance = random.Random(KILLS)
    waits_ms: list[int] = []
    with siege.under_load():
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.2, 2))
            begun_ms = now_ms()
            siege.kill(killed)
            waits_ms.append(_wait_for_delivery(siege, begun_ms, living.port))
            killed.start()
            siege.progress()
    summary = siege.judge()
    events = siege.load.events()
    completions = sum(isinstance(event, Settled) for event in events)
    print(
        f"\n{came_back(events)} of {completions} answered completions came back in {KILLS} kills; "
        "from a kill to the next delivery of a message that was numbered after it: "
        f"median {statistics.median(waits_ms):.0f} ms, max {max(waits_ms)} ms\n{summary}"
    )


def _wait_for_delivery(siege: Siege, begun_ms: int, port: int) -> int:
    """Return how long after a kill the other bridge's clients get what was numbered after it."""
    own = siege.notes_of(port)
    found: list[int] = []

    def has_come() -> bool:
        found[:] = [
            event.at_ms
            for event in own.events()[-2_000:]
            if isinstance(event, Delivered) and event.enqueued_ms > begun_ms
        ]
        return bool(found)

    wait_for("a delivery after a kill", has_come, within_s=120)
    return min(found) - begun_ms
