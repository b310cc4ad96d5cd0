"""What is forwarded twice on its way is there once at its end, whatever is killed meanwhile.

topic -> subscription -> (ForwardTo) middle -> expires -> (ForwardDeadLetteredMessagesTo) end
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash import history
from tests.crash.events import Accepted, Killed, Settled
from tests.crash.history import check
from tests.crash.load import LOCK_MS, now_ms
from tests.crash.siege import Notes, Siege, clients, story, wait_for
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.kills

END = "the/end"

NUMBERED_AGAIN_MS = 3_000
"""What was numbered so short a time before a kill may be there as a second copy, under its number:
its forwarder may not have had its confirm, and forwards it again."""

AHEAD_S = 3.0


@pytest.fixture(autouse=True)
def unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checker expect second copies for that time; numbers are judged as ever."""
    monkeypatch.setattr(history, "UNSURE_MS", NUMBERED_AGAIN_MS)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A subscription and a queue that forward; dead letters of the second one."""
    settings = {"LockDuration": "PT5S", "MaxDeliveryCount": 2000}
    expires = {"DefaultMessageTimeToLive": "PT1S", "DeadLetteringOnMessageExpiration": True}
    queues = [
        {"Name": END, "Properties": settings},
        {"Name": "middle", "Properties": {**expires, "ForwardDeadLetteredMessagesTo": END}},
    ]
    subscription = {"Name": "on", "Properties": {"ForwardTo": "middle"}}
    topic = {"Name": "topic", "Subscriptions": [subscription]}
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": [topic]}
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return path


def besieged(siege: Siege, broker: Broker, kills: int, *, with_broker: bool = False) -> str:
    """Kill bridge or RabbitMQ so many times under load; return the counts, or fail."""
    notes, chance = Notes(), random.Random(kills)

    def progress() -> None:
        for kind in (Accepted, Settled):
            before = notes.count(kind)
            wait_for(
                f"another {kind.__name__}",
                lambda kind=kind, before=before: notes.count(kind) > before,  # type: ignore[misc]
                within_s=90,
            )

    with ExitStack() as at_work:
        at_work.enter_context(clients("topic", siege.bridge, "a", notes))
        at_work.enter_context(clients(END, siege.bridges[-1], "a", notes))
        progress()
        for turn in range(kills):
            time.sleep(chance.uniform(0.2, 2))
            begun_ms = now_ms()
            if with_broker and turn % 2:
                assert broker.node is not None
                broker.node.kill()
                notes.add(Killed(now_ms(), is_broker=True, begun_ms=begun_ms))
                broker.node.start()
            else:
                bridge = chance.choice(siege.bridges)
                bridge.kill()
                notes.add(Killed(now_ms(), begun_ms=begun_ms))
                bridge.start()
            progress()
    siege.drain(END, notes, quiet_s=max(LOCK_MS / 1000 + 1, AHEAD_S + 3))
    faults = check(notes.events(), bridges=len(siege.bridges))
    shown = "\n".join(f"{fault}\n{story(fault, notes.events())}" for fault in faults[:10])
    assert not faults, f"{len(faults)} faults:\n{shown}"
    return f"{notes.count(Accepted)} accepted, {notes.count(Settled)} settled"


def test_what_is_forwarded_is_there_once_over_kills(
    start_bridge: StartBridge, broker: Broker, config: Path
) -> None:
    """Three kills of the bridge."""
    print(besieged(Siege(start_bridge(config=config)), broker, 3))


@pytest.mark.soak
def test_what_is_forwarded_is_there_once_over_twenty_kills(
    start_bridge: StartBridge, broker: Broker, config: Path
) -> None:
    """Twenty kills of the bridge."""
    print(besieged(Siege(start_bridge(config=config)), broker, 20))


@pytest.mark.soak
def test_what_is_forwarded_is_there_once_over_kills_of_rabbitmq_too(
    start_broker: Callable[[], Broker], start_bridge: StartBridge, config: Path
) -> None:
    """Ten kills, in turn of the bridge and of RabbitMQ."""
    broker = start_broker()
    bridge = start_bridge(on=broker, vhost="/", config=config)
    print(besieged(Siege(bridge), broker, 10, with_broker=True))


@pytest.mark.soak
def test_what_is_forwarded_is_there_once_over_kills_of_two_bridges(
    start_bridge: StartBridge, broker: Broker, config: Path
) -> None:
    """Ten kills of one or the other; who leads the target may be another than the source's."""
    first = start_bridge(config=config)
    second = start_bridge(vhost=first.vhost)
    print(besieged(Siege(first, second), broker, 10))
