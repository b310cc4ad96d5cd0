"""Bridges are killed with groups of single sends on their way."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from bridge.broker.failpoint import STEPS
from tests.crash.events import Killed
from tests.crash.load import LOCK_MS, now_ms
from tests.crash.siege import Notes, Siege, await_more, clients, faultless
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]

POINTS = (
    "engine.send.published",
    "engine.send.confirmed",
    *(f"sequencer.number.{step}" for step in STEPS),
)
QUEUES = {"load": "receive", "unique": "unique"}
"""Queue -> the role of its receivers; the second detects duplicates."""

REACH_S = 40.0
PATIENCE_S = 120.0


def besieged(siege: Siege, queue: str, kill: Callable[[Notes], None]) -> str:
    """Kill under the load of clients with many sends under way; return the counts, or fail."""
    notes = Notes()
    with (
        clients(f"bursts-{queue}", siege.bridge, "a", notes),
        clients(QUEUES[queue], siege.bridge, "b", notes),
    ):
        await_more(notes, within_s=PATIENCE_S)
        kill(notes)
        await_more(notes, within_s=PATIENCE_S)
    siege.drain(queue, notes, quiet_s=LOCK_MS / 1000 + 1)
    return faultless(notes.events(), bridges=len(siege.bridges))


@pytest.mark.parametrize("queue", QUEUES)
def test_killed_with_groups_on_their_way(start_bridge: StartBridge, queue: str) -> None:
    """At each step of a send and of its numbering: nothing is lost, no number names two."""
    siege = Siege(start_bridge())
    chance = random.Random(queue)

    def kill(notes: Notes) -> None:
        for point in POINTS:
            siege.kill()
            notes.add(Killed(now_ms()))
            siege.start_armed(f"{point}:{chance.randint(1, 30)}", within_s=REACH_S)
            notes.add(Killed(now_ms()))
        siege.bridge.start()

    print(besieged(siege, queue, kill))


def test_a_leader_killed_with_groups_on_their_way(start_bridge: StartBridge) -> None:
    """Two bridges, either of which may lead, are killed in turn."""
    siege = Siege(start_bridge(), start_bridge())
    print(
        besieged(
            siege,
            "load",
            lambda notes: siege.kill_in_turn(
                notes, kills=4, progress=partial(await_more, notes, within_s=PATIENCE_S)
            ),
        )
    )


@pytest.mark.soak
def test_rabbitmq_killed_with_groups_on_their_way(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """Ten kills, in turn of the bridge and of RabbitMQ."""
    broker = start_broker()
    siege = Siege(start_bridge(on=broker, vhost="/"))
    print(
        besieged(
            siege,
            "load",
            lambda notes: siege.kill_in_turn(
                notes,
                kills=10,
                progress=partial(await_more, notes, within_s=PATIENCE_S),
                broker=broker,
            ),
        )
    )
