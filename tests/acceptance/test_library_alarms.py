"""The library while RabbitMQ has an alarm: sends are refused, what empties a queue goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.acceptance.lanes import LANES, lane_of
from tests.acceptance.sdk import expect_silence, receive, take
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long

ENTITIES = {"orders": {"LockDuration": "PT5M"}}

SOON_S = 30.0
"""What does not wait for the alarm's end is done sooner."""

WITHIN_S = 120.0


def is_client_blocked(broker: Broker) -> bool:
    """Whether RabbitMQ has met the alarm with a client of the library, and told it so."""
    found = broker.management("GET", "/api/connections")
    states = {each["client_properties"].get("connection_name", ""): each["state"] for each in found}
    return any(name.startswith("bridge.client") and states[name] == "blocked" for name in states)


@pytest.mark.parametrize("lane_name", LANES[1:])
def test_an_alarm(
    start_broker: Callable[[], Broker],
    start_bridge: StartBridge,
    lane_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sends are refused at once and never arrive; what is there is received and completed.

    The first one, which meets the alarm, waits, and is accepted at the alarm's end.
    """
    own = start_broker()
    assert own.node is not None
    bridge = start_bridge(on=own, vhost="/")
    with ExitStack() as ends:
        lane = ends.enter_context(lane_of(lane_name, bridge))
        receiver = ends.enter_context(lane.client.get_queue_receiver("orders"))
        lane.send("orders", "one", "two", "three")
        (one,) = receive(receiver)
        own.node.rabbitmqctl("set_disk_free_limit", "1000000GB")
        pool = ends.enter_context(ThreadPoolExecutor(1))
        first = pool.submit(lane.send, "orders", "first in the alarm")
        eventually(lambda: is_client_blocked(own), within_s=WITHIN_S)

        begin_s = time.monotonic()
        monkeypatch.setattr("bridge.client.core.directory.FRESH_S", 0.0)
        receiver.complete_message(one)
        for expected in "two", "three":
            (message,) = receiver.receive_messages(1, max_wait_time=120)
            assert str(message) == expected
            receiver.complete_message(message)
        assert time.monotonic() - begin_s < SOON_S

        begin_s = time.monotonic()
        with pytest.raises(lane.errors.ServiceBusServerBusyError, match="alarm"):
            lane.send("orders", "refused")
        assert time.monotonic() - begin_s < SOON_S
        assert not first.done()

        own.node.rabbitmqctl("set_disk_free_limit", "50MB")
        with lane_of(lane_name, bridge) as other:
            other.send("orders", "after")
        first.result(WITHIN_S)
        assert {str(each) for each in take(receiver, 2)} == {"first in the alarm", "after"}
        expect_silence(receiver)
        lane.send("orders", "last")
        assert [str(each) for each in take(receiver)] == ["last"]
