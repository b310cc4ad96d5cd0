"""The library where RabbitMQ sets limits to receiving: few channels, no permission to read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import expect_silence, receive, take
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker

ENTITIES = {
    f"{name}-{lane}": {"LockDuration": "PT5M"} for name in ("many", "unread") for lane in LANES[1:]
}

CHANNELS_MAX = 64
MANY = 200


@pytest.mark.long
def test_more_locks_than_channels(start_broker: Any, start_bridge: StartBridge) -> None:
    """Messages received one by one keep their locks, and can all be settled."""
    broker = start_broker(configuration={"channel_max": str(CHANNELS_MAX)})
    bridge = start_bridge(on=broker, vhost="/")
    for name in LANES[1:]:
        with lane_of(name, bridge) as lane:
            _receive_many(lane, f"many-{name}")


def _receive_many(lane: Lane, queue: str) -> None:
    bodies = [f"{number}" for number in range(MANY)]
    lane.send(queue, *bodies)
    with lane.client.get_queue_receiver(queue) as receiver:
        messages = [receive(receiver)[0] for _ in bodies]
        assert sorted(map(str, messages)) == sorted(bodies)
        for message in messages:
            receiver.complete_message(message)
        expect_silence(receiver)
        lane.send(queue, *bodies)
        for _ in bodies:
            take(receiver)
        expect_silence(receiver)


@pytest.mark.parametrize("lane_name", LANES[1:])
def test_who_may_not_read_is_told(lane_name: str, bridge: Bridge, broker: Broker) -> None:
    """By RabbitMQ's permissions; once he may, the next call receives."""
    vhost, queue = bridge.amqp_url.rpartition("/")[2], f"unread-{lane_name}"
    user = f"writer-{lane_name}"
    place = bridge.amqp_url.rpartition("@")[2]

    def allow(read: str) -> None:
        rights = {"configure": "", "write": ".*", "read": read}
        broker.management("PUT", f"/api/permissions/{vhost}/{user}", rights)

    broker.management("PUT", f"/api/users/{user}", {"password": "secret", "tags": ""})
    try:
        allow("")
        url = SimpleNamespace(amqp_url=f"amqp://{user}:secret@{place}")
        with lane_of(lane_name, url) as lane:
            lane.send(queue, "one")
            with lane.client.get_queue_receiver(queue) as receiver:
                with pytest.raises(lane.errors.ServiceBusAuthorizationError, match=queue):
                    receiver.receive_messages(max_wait_time=5)
                with pytest.raises(lane.errors.ServiceBusAuthorizationError):
                    next(receiver)
                allow(".*")
                assert [str(each) for each in take(receiver)] == ["one"]
    finally:
        broker.management("DELETE", f"/api/users/{user}")
