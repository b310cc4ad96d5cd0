"""Whatever anybody publishes into a queue, both lanes of the library read it to the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bridge.broker.connection.endpoint import parse_url
from bridge.client import ServiceBusReceivedMessage
from tests.acceptance.lanes import LANES, lane_of
from tests.integration.poison import Poison, Publisher, messages

pytestmark = pytest.mark.long

ENTITIES: dict[str, dict[str, Any]] = {f"any-{lane}": {} for lane in LANES[1:]}

EVERY = 7
"""Of so many kinds of poison one goes to each place."""

SHOWN = [
    name
    for name, value in vars(ServiceBusReceivedMessage).items()
    if isinstance(value, property) and not name.startswith("_")
] + ["application_properties", "message_id", "scheduled_enqueue_time_utc", "session_id", "subject"]


async def publish(url: str, exchange: str, key: str, poison: list[Poison]) -> int:
    """Publish what RabbitMQ takes; return how many that are."""
    publisher = Publisher(parse_url(url))
    try:
        return await publisher.publish(exchange, key, poison)
    finally:
        await publisher.close()


@pytest.mark.parametrize("lane_name", LANES[1:])
def test_poison_is_read_to_the_end(bridge: Any, lane_name: str) -> None:
    """All that can be a message is received and completed; what cannot is a dead letter."""
    queue = f"any-{lane_name}"
    taken = 0
    for number, place in enumerate([("", queue), (queue, ""), ("", f"{queue}/$deadletterqueue")]):
        poison = messages()[number::EVERY]
        taken += asyncio.run(publish(bridge.amqp_url, *place, poison))
    with lane_of(lane_name, bridge) as lane:
        lane.send(queue, "last")
        found: list[str] = []
        for sub_queue in (None, "deadletter"):
            with lane.client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
                while batch := receiver.receive_messages(50, max_wait_time=5):
                    for message in batch:
                        for name in SHOWN:
                            getattr(message, name)
                        found.append(b"".join(message.body).decode(errors="replace"))
                        receiver.complete_message(message)
    assert "last" in found
    assert len(found) > taken * 0.9
