"""A message as RabbitMQ delivered it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.broker.connection.channel import Channel


@dataclass(slots=True, eq=False)
class Delivery:
    """A message as RabbitMQ delivered it.

    Attributes:
        tag: the delivery tag, on this channel.
        redelivered: whether the message was delivered before, as far as RabbitMQ knows.
        exchange: the exchange that the message was published to.
        routing_key: the routing key of the publish.
        properties: encoded properties.
        body: the whole body.
        consumer_tag: the consumer's tag, "" for a get.
        channel: the channel that settles the delivery.
        remaining: the number of messages that were still ready; for a get only.
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
