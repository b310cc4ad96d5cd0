"""The library where RabbitMQ sets limits to receiving."""

from __future__ import annotations

from typing import Any

from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import expect_silence, receive, take
from tests.fixtures.bridge import StartBridge

ENTITIES = {f"many-{lane}": {"LockDuration": "PT5M"} for lane in LANES[1:]}

CHANNELS_MAX = 64
MANY = 200


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
