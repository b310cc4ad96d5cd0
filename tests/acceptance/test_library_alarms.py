"""The library while RabbitMQ has an alarm: sends are refused, what empties a queue goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from bridge.client.exceptions import OutcomeUnknownError
from tests.acceptance.lanes import LANES, lane_of
from tests.acceptance.sdk import expect_silence, receive, take
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.long

ENTITIES = {"orders": {"LockDuration": "PT5M"}}

SOON_S = 5.0
"""RabbitMQ says that it has an alarm, or what it has read before is confirmed, sooner."""


@pytest.mark.parametrize("lane_name", LANES[1:])
def test_an_alarm(
    start_broker: Callable[[], Broker],
    start_bridge: StartBridge,
    lane_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sends are refused at once and never arrive; what is there is received and completed."""
    own = start_broker()
    assert own.node is not None
    bridge = start_bridge(on=own, vhost="/")
    with lane_of(lane_name, bridge) as lane, lane.client.get_queue_receiver("orders") as receiver:
        lane.send("orders", "one", "two", "three")
        (one,) = receive(receiver)
        own.node.rabbitmqctl("set_disk_free_limit", "1000000GB")
        begin_s = time.monotonic()
        with suppress(OutcomeUnknownError):  # the first that meets the alarm may still be stored
            lane.send("orders", "maybe")
        assert time.monotonic() - begin_s < SOON_S

        begin_s = time.monotonic()
        monkeypatch.setattr("bridge.client.core.directory.FRESH_S", 0.0)
        receiver.complete_message(one)
        for expected in "two", "three":
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            assert str(message) == expected
            receiver.complete_message(message)
        assert time.monotonic() - begin_s < SOON_S

        begin_s = time.monotonic()
        with pytest.raises(lane.errors.ServiceBusServerBusyError, match="alarm"):
            lane.send("orders", "refused")
        assert time.monotonic() - begin_s < SOON_S

        own.node.rabbitmqctl("set_disk_free_limit", "50MB")
        with lane_of(lane_name, bridge) as other:
            other.send("orders", "after")
        found = ""
        while found != "after":
            found = str(take(receiver)[0])
            assert found in {"maybe", "after"}
        expect_silence(receiver)
        lane.send("orders", "last")
        assert [str(each) for each in take(receiver)] == ["last"]
