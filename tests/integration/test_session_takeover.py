"""How a bridge begins to hold a session entity's messages, on a real RabbitMQ."""

from __future__ import annotations

import asyncio

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.handover import HandOver, Publish
from bridge.engine.receiving.intake import Intake
from bridge.engine.sending import sender
from bridge.engine.sessions import holders, takeover
from bridge.engine.sessions.takeover import take_over
from bridge.engine.sessions.windows import Windows
from bridge.model import entity as model
from bridge.topology import names, parts
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.integration.door import open_door
from tests.integration.session_door import SessionClient

COUNT = 500
BODY = b"x" * 10_000
"""More than is read at once."""

LATE_S = 0.4
QUEUE = model.Queue(name="orders", requires_session=True)


async def test_what_rabbitmq_has_given_out_is_waited_for(
    endpoint: Endpoint, confirming: Channel
) -> None:
    """Also when it is long on its way: what came later would be out of order."""
    resource = names.active_queue("orders")
    await confirming.declarations.declare_queue(parts.active_queue(QUEUE.name))
    properties = Properties(delivery_mode=2).encode()
    await HandOver(confirming).move(
        [Publish("", resource, properties, BODY)] * COUNT, failpoint="bench.hop"
    )

    async def on_up(connection: object) -> None:
        pass

    intake = Intake(endpoint, name="test", on_up=on_up)
    running = asyncio.create_task(intake.run())
    arrived: list[Delivery] = []

    def on_delivery(delivery: Delivery) -> None:
        arrived.append(delivery)
        if len(arrived) == 1:
            socket = delivery.channel._transport._socket
            assert socket is not None
            socket.pause_reading()
            asyncio.get_running_loop().call_later(LATE_S, socket.resume_reading)

    windows = Windows(
        resource, intake.route(resource), on_delivery=on_delivery, on_lost=lambda error: None
    )
    async with asyncio.timeout(20):
        await take_over(
            resource,
            windows,
            intake=intake,
            has_been_lost=False,
            begin=windows.begin,
            arrived=lambda: len(arrived),
        )
    count = len(arrived)
    windows.close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert count == COUNT


async def test_a_long_takeover_lasts_no_longer_than_who_waits(
    endpoint: Endpoint, broker: Broker, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accept ends when its own time is over, not when a question of bridges is."""
    monkeypatch.setattr(sender, "REPLY_TIMEOUT_S", 0.3)
    monkeypatch.setattr(holders, "REPLY_TIMEOUT_S", 0.3)
    monkeypatch.setattr(takeover, "GONE_S", 1.5)
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        await confirming.consumers.consume(names.active_queue("orders"), lambda delivery: None)
        client = await SessionClient(door).accept("a")
        assert client.receiver.session_id == "a"
