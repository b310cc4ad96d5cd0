"""The messages that a bridge holds."""

from __future__ import annotations

from typing import Any

from bridge.broker.connection.delivery import Delivery
from bridge.message import message
from bridge.message.held import Held, HeldCopy
from bridge.wire.copies import Reader

HeldMessage = Held[Any]
Copy = HeldCopy[Any]
"""Held on a channel of `broker`, or on a `ReceivingChannel`."""


def read(
    delivery: Delivery, fetch: int, *, can_expire: bool, reader: Reader | None = None
) -> HeldMessage:
    """Return a delivery as a held message; see `message.facts`."""
    facts = message.facts(
        delivery.properties,
        delivery.body,
        delivery.exchange,
        can_expire=can_expire,
        reader=reader,
    )
    return Held(*facts, fetch, delivery.channel, delivery.tag)


def unreadable(delivery: Delivery, fetch: int) -> HeldMessage:
    """Return a delivery as a held message that has only the body."""
    facts = message.unreadable(delivery.body, delivery.exchange)
    return Held(*facts, fetch, delivery.channel, delivery.tag)
