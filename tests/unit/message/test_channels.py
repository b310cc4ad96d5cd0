"""The channels of one queue: reused or spent when all is settled, and lost together."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.client.core.wire import Delivery
from bridge.client.exceptions import ServiceBusConnectionError
from bridge.message.channels import RETIRE_S, REUSED, SHARED, SPENT, ChannelLimits, Channels
from tests.fixtures.scripted_wire import ScriptedChannel, ScriptedWire


class Setup:
    """Channels on a scripted connection, and what they say."""

    def __init__(self, limits: ChannelLimits) -> None:
        self.wire = ScriptedWire()
        self.lost: list[list[ScriptedChannel]] = []
        self.ready = 0
        self.channels: Channels[ScriptedChannel] = Channels(
            limits,
            open_own=self.wire.open,
            later=self.wire.later,
            on_lost=lambda error, ended: self.lost.append(ended),
            on_ready=self.on_ready,
        )
        self.channels.set_up(True)

    def on_ready(self) -> None:
        self.ready += 1

    def take(self) -> ScriptedChannel:
        channel = self.channels.take()
        assert channel is not None
        return channel

    def deliver(self, channel: ScriptedChannel, *tags: int) -> None:
        """A consumer of the channel gets messages."""
        channel.consume("orders", "c", 0, _ignore, lambda: None)
        assert channel.deliver is not None
        for tag in tags:
            channel.deliver(Delivery(tag, False, "", b"", b""))


def _ignore(delivery: Any) -> None:
    pass


def test_a_channel_stays_open_for_a_second_after_its_last_settlement() -> None:
    """A queue that elects a leader loses the acks that it has not applied when it ends."""
    setup = Setup(SPENT)
    channel = setup.take()
    setup.deliver(channel, 1, 2)
    setup.channels.retire(channel)
    channel.ack(1)
    setup.wire.advance(10 * RETIRE_S)
    assert not channel.is_closed, "a message is held on it"
    channel.nack(2)
    setup.wire.advance(RETIRE_S / 2)
    assert not channel.is_closed
    setup.wire.advance(RETIRE_S)
    assert channel.is_closed
    assert setup.lost == []


def test_a_settled_channel_is_used_again_before_4_3() -> None:
    """Each takes memory in RabbitMQ."""
    setup = Setup(REUSED)
    channel = setup.take()
    setup.deliver(channel, 1)
    setup.channels.retire(channel)
    assert setup.take() is not channel, "a message is held on it"
    channel.ack(1)
    assert setup.take() is channel


def test_consumers_share_the_main_channel_where_each_has_none() -> None:
    """On one node since 4.3; it is never retired."""
    setup = Setup(SHARED)
    main = setup.channels.main = setup.wire.open(_ignore)
    assert setup.take() is main
    setup.channels.retire(main)
    setup.wire.advance(10 * RETIRE_S)
    assert not main.is_closed


def test_the_loss_of_one_channel_ends_all() -> None:
    """Otherwise the returned messages would come behind those of the other channels."""
    setup = Setup(SPENT)
    first, second = setup.take(), setup.take()
    first.fail(ServiceBusConnectionError("gone"))
    second.fail(ServiceBusConnectionError("gone, too"))
    assert setup.lost == [[first, second]]
    assert second.is_closed
    assert setup.take() not in (first, second)


@pytest.mark.parametrize("is_lost", [False, True])
def test_nothing_is_fetched_while_a_message_is_on_its_way_back(is_lost: bool) -> None:
    """On another channel newer messages would overtake it; with the channels that ends."""
    setup = Setup(SPENT)
    channel = setup.take()
    channel.is_slow = True
    setup.channels.returned(channel)
    assert not setup.channels.can_fetch
    if is_lost:
        channel.fail(ServiceBusConnectionError("gone"))
        setup.channels.set_up(True)
    assert setup.channels.can_fetch is is_lost
    channel.pass_barriers()
    assert setup.channels.can_fetch
    assert setup.ready == (not is_lost)
