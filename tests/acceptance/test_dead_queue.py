"""A queue without an answer is named at the admin port, with since when; the others are served."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.sdk import client_of, receive, send, warnings_of
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.dead import start_queue, stop_queue
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.kills

ENTITIES: dict[str, dict[str, Any]] = {"orders": {}, "others": {}}

NAMED = re.compile(r"RabbitMQ gives no answer for 'orders' since 20\d\d-\d\d-\d\dT.*Z: .+")


@pytest.fixture(scope="module")
def broker(own_broker: Broker) -> Broker:
    """No other test meets what these do to a RabbitMQ."""
    return own_broker


def silent_since(bridge: Bridge) -> dict[str, float]:
    """The queues that the metric names, and its values."""
    families = text_string_to_metric_families(bridge.get("/metrics"))
    (family,) = (each for each in families if each.name == "busbridge_queue_silent_since_seconds")
    return {sample.labels["queue"]: sample.value for sample in family.samples}


def test_a_dead_queue_is_named(start_bridge: StartBridge, broker: Broker, vhost: str) -> None:
    """By readiness, which stays green for the other entities' sake, and by a metric."""
    bridge = start_bridge()
    assert warnings_of(bridge) == []
    with client_of(bridge) as client:
        send(client, "orders", "a")
        send(client, "others", "b")
        begin_s = time.time()
        asyncio.run(stop_queue(broker, vhost, "orders"))
        try:
            with client.get_queue_receiver("orders") as waiting:
                assert waiting.receive_messages(max_wait_time=1) == []
                eventually(lambda: any(map(NAMED.fullmatch, warnings_of(bridge))), "named")
                since = silent_since(bridge)
                assert list(since) == ["orders"]
                assert begin_s <= since["orders"] <= time.time()
                with client.get_queue_receiver("others") as receiver:
                    assert [str(each) for each in receive(receiver, 1)] == ["b"]
        finally:
            asyncio.run(start_queue(broker, vhost, "orders"))
        with client.get_queue_receiver("orders") as receiver:
            assert [str(each) for each in receive(receiver, 1)] == ["a"]
    eventually(lambda: not warnings_of(bridge) and not silent_since(bridge), "named no more")
