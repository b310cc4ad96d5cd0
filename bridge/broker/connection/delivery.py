"""One message as RabbitMQ delivered it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.broker.connection.channel import Channel


@dataclass(slots=True, eq=False)
class Delivery:
    """One message as RabbitMQ delivered it.

    Attributes:
        tag: the delivery tag, of this channel.
        redelivered: whether it was delivered before, as far as RabbitMQ knows.
        exchange: where it was published.
        routing_key: with which key.
        properties: encoded properties.
        body: the whole body.
        consumer_tag: the consumer's tag, "" for a get.
        channel: where it is settled.
        remaining: how many more messages were ready; of a get only.
    """

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes
    consumer_tag: str
    channel: Channel
    remaining: int = 0
