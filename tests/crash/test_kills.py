"""The bridge is killed at every hand-over point and at random, under load; nothing is lost."""

from __future__ import annotations

import random
import time

import pytest

from bridge.broker.failpoint import HAND_OVERS, POINTS, STEPS
from tests.crash.siege import Siege
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import ENDS_S

pytestmark = pytest.mark.kills

ELSEWHERE = {
    "bench.hop": "not a part of the bridge",
    "engine.defer": "nobody of the load defers: test_deferral.py",
    "test.hop": "not a part of the bridge",
    "engine.forward": "nothing here forwards: test_forwarding.py",
    "engine.transfer": "nothing here is a transaction: test_transfers.py",
    "engine.transfer_refused": "nothing here is a transaction: test_transfers.py",
    "scheduler.move": "needs a schedule of minutes: the sidecar's own tests",
    "sequencer.again": "needs a failure of RabbitMQ: test_broker_kills.py",
}
"""Sites that this load cannot reach."""

ONLY_AFTER = {
    "engine.drop": "engine.again.confirmed",
}
"""Sites that only a start after another kill reaches: site -> the point to die at before."""

NOTHING_TO_ACK = {"sequencer.journal.acked": "what is only written down acks no message"}

NOT_LOADED = (
    "dead_letters.",
    "disposal.",
    "engine.commit.",
    "engine.deferred.",
    "engine.move.",
    "engine.session.",
    "queue.",
    "usage.",
)
"""Nobody of the load defers, or accepts sessions (test_deferral.py, test_sessions.py, also for the
queues that are made when they are used; of the history test_made_on_use.py), no queue
refuses (test_refused_moves.py) or is unbound (test_deleted_by_hand.py), nothing is idle
(test_idle_deletion.py), and there are no transactions (test_transacted_states.py,
test_transactions.py)."""

SINCE_4_3 = {"engine.release.returned"}
"""Before RabbitMQ 4.3 a released message is kept, because a return would count."""


REACH_S = 120.0
"""The longest that a point is waited for; most are reached within a second."""

STARTS = 3
"""Some points are reached soon after a start or not at all: what expires in an inbox does so while
nobody empties it."""


def armed(point: str, chance: random.Random) -> str:
    """Return the point at one of its first passes; busy ones at a later one too."""
    busy = point.startswith(("sequencer.number", "engine.send.", "engine.complete"))
    return f"{point}:{chance.randint(1, 40) if busy else 1}"


def besiege(siege: Siege, points: list[str], chance: random.Random) -> list[str]:
    """Kill the bridge at each point under load; return the points that were not reached."""
    unreached = []
    with siege.under_load():
        siege.kill()
        for point in points:
            if not any(die_at(siege, point, chance) for _ in range(STARTS)):
                unreached.append(point)
        siege.bridge.start()
        siege.progress()
    return unreached


def die_at(siege: Siege, point: str, chance: random.Random) -> bool:
    """Start the bridge to die at a point; return whether it did."""
    if before := ONLY_AFTER.get(point.rpartition(".")[0]):
        siege.start_armed(armed(before, chance), within_s=REACH_S)
    return siege.start_armed(armed(point, chance), within_s=REACH_S)


def points_of(broker: Broker) -> list[str]:
    """Return every point that this load must reach: no site goes without."""
    points = [f"{site}.{step}" for site in HAND_OVERS if site not in ELSEWHERE for step in STEPS]
    absent = set(NOTHING_TO_ACK) | (SINCE_4_3 if broker.version < (4, 3) else set())
    points += [point for point in POINTS if not point.startswith(NOT_LOADED)]
    return [point for point in points if point not in absent]


@pytest.mark.timeout(2_400)
def test_every_point(start_bridge: StartBridge, broker: Broker) -> None:
    """A kill at each step of each hand-over, and after each other ack and reject, costs nothing."""
    siege = Siege(start_bridge())
    unreached = besiege(siege, points_of(broker), random.Random(0))
    siege.judge()
    assert unreached == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_point_in_another_order(start_bridge: StartBridge, broker: Broker, seed: int) -> None:
    """The state that one kill leaves behind meets another kill."""
    siege = Siege(start_bridge())
    chance = random.Random(seed)
    points = points_of(broker)
    chance.shuffle(points)
    unreached = besiege(siege, points, chance)
    siege.judge()
    assert unreached == []


def random_kills(siege: Siege, count: int) -> None:
    """Kill one of the bridges so many times, each time after some work."""
    chance = random.Random(count)
    with siege.under_load():
        for _ in range(count):
            time.sleep(chance.uniform(0.2, 4))
            bridge = chance.choice(siege.bridges)
            siege.kill(bridge)
            bridge.start()
            siege.progress()


@pytest.mark.soak
def test_random_kills(start_bridge: StartBridge) -> None:
    """Kills at random, under load."""
    siege = Siege(start_bridge())
    random_kills(siege, 3)
    siege.judge()


@pytest.mark.soak
def test_twenty_random_kills(start_bridge: StartBridge) -> None:
    """Twenty kills at random, under load."""
    siege = Siege(start_bridge())
    random_kills(siege, 20)
    siege.judge()


def test_graceful_stop(start_bridge: StartBridge) -> None:
    """SIGTERM under load: an end within 5 s, and nothing lost, doubled or early."""
    siege = Siege(start_bridge())
    with siege.under_load():
        for _ in range(2):
            time.sleep(2)
            begun = time.monotonic()
            assert siege.bridge.stop() == 0
            assert time.monotonic() - begun < ENDS_S
            siege.note_kill(is_orderly=True)
            siege.bridge.start()
            siege.progress()
    siege.judge()
