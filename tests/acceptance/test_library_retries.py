"""What the library does again when it has failed before it was begun."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.lanes import LANES, lane_of
from tests.acceptance.sdk import take
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long

ENTITIES = {"orders": {"LockDuration": "PT1M"}}

PATIENT = {"retry_total": 99, "retry_mode": "fixed", "retry_backoff_factor": 0.2}


@pytest.mark.parametrize("lane_name", LANES[1:])
def test_receiving_while_rabbitmq_is_away(
    start_broker: Callable[[], Broker],
    start_bridge: StartBridge,
    lane_name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is tried again as a send is: the call returns what is sent when RabbitMQ is back."""
    caplog.set_level(logging.WARNING, "azure.servicebus.bridge")
    for kind in "sync", "aio":  # RabbitMQ takes longer to start
        monkeypatch.setattr(f"bridge.client.{kind}.client.CONNECT_S", 1.0)
    own = start_broker()
    assert own.node is not None
    bridge = start_bridge(on=own, vhost="/")
    with (
        lane_of(lane_name, bridge, **PATIENT) as lane,
        lane.client.get_queue_receiver("orders") as receiver,
        ThreadPoolExecutor(1) as pool,
    ):
        lane.send("orders", "before")
        assert [str(each) for each in take(receiver)] == ["before"]
        own.node.kill()
        for purpose in "publishing", "consuming":
            eventually(lambda purpose=purpose: f"was lost ({purpose})" in caplog.text)
        receiving = pool.submit(receiver.receive_messages, 1, max_wait_time=45)
        own.node.start()
        lane.send("orders", "after")
        (message,) = receiving.result(120)
        assert str(message) == "after"
        receiver.complete_message(message)
