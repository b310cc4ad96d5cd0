"""Each message id once, however often it is sent and whatever is killed meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.crash.events import Accepted, Killed, Settled
from tests.crash.history import check
from tests.crash.load import LOCK_MS, now_ms
from tests.crash.siege import Notes, Siege, clients, story, wait_for
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.kills

QUEUE = "unique"


def besieged(siege: Siege, broker: Broker, kills: int, *, with_broker: bool) -> str:
    """Kill bridge or RabbitMQ so many times under load; return the counts, or fail."""
    notes, chance = Notes(), random.Random(kills)
    bridge = siege.bridge

    def progress() -> None:
        for kind in (Accepted, Settled):
            before = notes.count(kind)
            wait_for(
                f"another {kind.__name__}",
                lambda kind=kind, before=before: notes.count(kind) > before,  # type: ignore[misc]
                within_s=90,
            )

    with clients("repeat", bridge, "a", notes), clients("unique", bridge, "a", notes):
        progress()
        for turn in range(kills):
            time.sleep(chance.uniform(0.2, 3))
            begun_ms = now_ms()
            if with_broker and turn % 2:
                assert broker.node is not None
                broker.node.kill()
                notes.add(Killed(now_ms(), is_broker=True, begun_ms=begun_ms))
                broker.node.start()
            else:
                bridge.kill()
                notes.add(Killed(now_ms(), begun_ms=begun_ms))
                bridge.start()
            progress()
    siege.drain(QUEUE, notes, quiet_s=LOCK_MS / 1000 + 1)
    faults = check(notes.events())
    shown = "\n".join(f"{fault}\n{story(fault, notes.events())}" for fault in faults[:10])
    assert not faults, f"{len(faults)} faults:\n{shown}"
    return f"{notes.count(Accepted)} accepted, {notes.count(Settled)} settled"


def test_each_id_is_there_once_over_kills_of_the_bridge(
    start_bridge: StartBridge, broker: Broker
) -> None:
    """Three kills; half of all that is sent is sent twice."""
    print(besieged(Siege(start_bridge()), broker, 3, with_broker=False))


@pytest.mark.soak
def test_each_id_is_there_once_over_twenty_kills(start_bridge: StartBridge, broker: Broker) -> None:
    """Twenty kills of the bridge."""
    print(besieged(Siege(start_bridge()), broker, 20, with_broker=False))


@pytest.mark.soak
def test_each_id_is_there_once_over_kills_of_rabbitmq_too(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """Ten kills, in turn of the bridge and of RabbitMQ."""
    broker = start_broker()
    siege = Siege(start_bridge(on=broker, vhost="/"))
    print(besieged(siege, broker, 10, with_broker=True))
