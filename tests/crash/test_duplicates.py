"""Each message id once, however often it is sent and whatever is killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.crash.load import LOCK_MS
from tests.crash.siege import Notes, Siege, await_more, clients, faultless
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.kills

QUEUE = "unique"


def besieged(siege: Siege, kills: int, broker: Broker | None = None) -> str:
    """Kill bridge or RabbitMQ so many times under load; return the counts, or fail."""
    notes, bridge = Notes(), siege.bridge
    with clients("repeat", bridge, "a", notes), clients("unique", bridge, "a", notes):
        siege.kill_in_turn(notes, kills=kills, progress=partial(await_more, notes), broker=broker)
    siege.drain(QUEUE, notes, quiet_s=LOCK_MS / 1000 + 1)
    return faultless(notes.events())


def test_each_id_is_there_once_over_kills_of_the_bridge(start_bridge: StartBridge) -> None:
    """Three kills; half of all that is sent is sent twice."""
    print(besieged(Siege(start_bridge()), 3))


@pytest.mark.soak
def test_each_id_is_there_once_over_twenty_kills(start_bridge: StartBridge) -> None:
    """Twenty kills of the bridge."""
    print(besieged(Siege(start_bridge()), 20))


@pytest.mark.soak
def test_each_id_is_there_once_over_kills_of_rabbitmq_too(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """Ten kills, in turn of the bridge and of RabbitMQ."""
    broker = start_broker()
    siege = Siege(start_bridge(on=broker, vhost="/"))
    print(besieged(siege, 10, broker))
