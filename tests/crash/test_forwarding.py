"""What is forwarded twice on its way is there once at its end, whatever is killed meanwhile.

topic -> subscription -> (ForwardTo) middle -> expires -> (ForwardDeadLetteredMessagesTo) end
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.crash import history
from tests.crash.load import LOCK_MS
from tests.crash.siege import Notes, Siege, await_more, clients, faultless
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.kills

END = "the/end"

FORWARDED_AGAIN_MS = 3_000
"""What was numbered so short a time before a kill may be there as a second copy, under its number:
its forwarder may not have had its confirm, and forwards it again."""

AHEAD_S = 3.0


@pytest.fixture(autouse=True)
def unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checker expect second copies for that time; numbers are judged as ever."""
    monkeypatch.setattr(history, "NUMBERED_AGAIN_MS", FORWARDED_AGAIN_MS)


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


def besieged(siege: Siege, kills: int, broker: Broker | None = None) -> str:
    """Kill bridge or RabbitMQ so many times under load; return the counts, or fail."""
    notes = Notes()
    with (
        clients("topic", siege.bridge, "a", notes),
        clients(END, siege.bridges[-1], "a", notes),
    ):
        siege.kill_in_turn(
            notes,
            kills=kills,
            progress=partial(await_more, notes),
            pause_s=(0.2, 2),
            broker=broker,
        )
    siege.drain(END, notes, quiet_s=max(LOCK_MS / 1000 + 1, AHEAD_S + 3))
    return faultless(notes.events(), bridges=len(siege.bridges))


def test_what_is_forwarded_is_there_once_over_kills(
    start_bridge: StartBridge, config: Path
) -> None:
    """Three kills of the bridge."""
    print(besieged(Siege(start_bridge(config=config)), 3))


@pytest.mark.soak
def test_what_is_forwarded_is_there_once_over_twenty_kills(
    start_bridge: StartBridge, config: Path
) -> None:
    """Twenty kills of the bridge."""
    print(besieged(Siege(start_bridge(config=config)), 20))


@pytest.mark.soak
def test_what_is_forwarded_is_there_once_over_kills_of_rabbitmq_too(
    start_broker: Callable[[], Broker], start_bridge: StartBridge, config: Path
) -> None:
    """Ten kills, in turn of the bridge and of RabbitMQ."""
    broker = start_broker()
    bridge = start_bridge(on=broker, vhost="/", config=config)
    print(besieged(Siege(bridge), 10, broker))


@pytest.mark.soak
def test_what_is_forwarded_is_there_once_over_kills_of_two_bridges(
    start_bridge: StartBridge, config: Path
) -> None:
    """Ten kills of one or the other; who leads the target may be another than the source's."""
    siege = Siege(start_bridge(config=config), start_bridge())
    print(besieged(siege, 10))
