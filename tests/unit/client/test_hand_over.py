"""A client's message that leaves its queue while the connection ends: whoever asked is told so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pika.exceptions import ChannelWrongStateError

from bridge.client.core.hand_over import ClientHandOver
from bridge.client.core.publisher import Publisher
from bridge.client.exceptions import (
    MessageLockLostError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from bridge.client.sync.channel import PikaChannel
from bridge.message.departure import Departure
from tests.unit.message.test_departure import NOW_MS, Channel, Source, message


class EndingChannel:
    """pika's channel of a connection that is being closed: it takes no publish."""

    is_open = False

    def __init__(self, on_open_callback: Callable[[Any], None]) -> None:
        self.on_open = on_open_callback

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None

    def confirm_delivery(self, on_confirm: object, callback: Callable[[Any], None]) -> None:
        """Publishes are confirmed."""
        callback(None)

    def basic_publish(self, *args: object, **kwargs: object) -> None:
        """Refuse."""
        raise ChannelWrongStateError("Channel is closing.")


class EndingWire:
    """The wire: it opens one channel, and then there is no connection."""

    blocked = None

    def __init__(self) -> None:
        self.opened: list[EndingChannel] = []
        self.closed: list[ServiceBusError] = []
        self.late: list[Callable[[], None]] = []

    def open(
        self, on_closed: Callable[[ServiceBusError], None], *, has_confirms: bool
    ) -> PikaChannel:
        """Open a channel."""
        if self.opened:
            raise ServiceBusConnectionError("There is no connection.")

        def closed(error: ServiceBusError) -> None:
            self.closed.append(error)
            on_closed(error)

        connection = SimpleNamespace(channel=self._channel)
        channel = PikaChannel(cast(Any, connection), closed, has_confirms=has_confirms)
        self.opened[0].on_open(None)
        return channel

    def _channel(self, *, on_open_callback: Callable[[Any], None]) -> EndingChannel:
        self.opened.append(EndingChannel(on_open_callback))
        return self.opened[0]

    def later(self, wait_s: float, call: Callable[[], None]) -> SimpleNamespace:
        """Keep it for later."""
        self.late.append(call)
        return SimpleNamespace(cancel=lambda: None)


def _moved(channel: Channel) -> tuple[EndingWire, Departure, Source, list[Exception | None]]:
    wire, source, told = EndingWire(), Source(), list[Exception | None]()
    hand_over = ClientHandOver(cast(Any, wire), Publisher(cast(Any, wire)))
    departure = Departure(hand_over, hand_over, lambda: NOW_MS)
    held = message(1, channel)
    channel.is_closed = True
    departure.dead_letter(source, held, "why", None, {}, told.append)
    return wire, departure, source, told


def test_a_hand_over_that_fails_at_once_is_told_to_whoever_asked() -> None:
    """The channel takes no publish, and the connection is gone with the lock."""
    wire, departure, source, told = _moved(Channel())
    assert [type(each) for each in told] == [MessageLockLostError]
    assert len(wire.closed) == 1
    assert departure.is_idle
    assert not source.gone


def test_the_error_of_a_hand_over_that_was_not_begun_is_raised() -> None:
    """It is on its way no more."""
    wire, source = EndingWire(), Source()
    wire.opened.append(EndingChannel(lambda channel: None))
    hand_over = ClientHandOver(cast(Any, wire), Publisher(cast(Any, wire)))
    departure = Departure(hand_over, hand_over, lambda: NOW_MS)
    told: list[Exception | None] = []
    with pytest.raises(ServiceBusConnectionError):
        departure.dead_letter(source, message(1, Channel()), "why", None, {}, told.append)
    assert (departure.is_idle, told) == (True, [])
