"""Messages that expired in an inbox without a number: return them, to be numbered as expired.

A native publisher's `expiration` also runs while its message waits in the inbox. RabbitMQ then
dead-letters the message to one queue that all inboxes share. The sequencer applies the entity's own
rule (dead-letter or drop).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.errors import BrokerError, Unroutable
from bridge.broker.handover import HandOver, Publish
from bridge.broker.outcome import resolve
from bridge.engine.poison import Poison
from bridge.machine.inbox.arrival import PROPERTIES_BYTES_MAX
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.basic import Properties, python_value, text
from bridge.wire.envelope import EXPIRED_UNNUMBERED_KIND

PREFETCH = 200

_BARE = Properties(headers={headers.KIND: text(EXPIRED_UNNUMBERED_KIND)}, delivery_mode=2).encode()
"""Properties that replace those of a message whose properties are larger than RabbitMQ takes."""

log = logging.getLogger(__name__)


async def return_expired(connection: ConnectionLease, poison: Poison) -> None:
    """Hand expired messages back to their inboxes until the channel ends; raise its error then.

    Args:
        poison: takes note of messages that came from no inbox. They are dropped: they belong to no
            entity.
    """
    channel = await connection.channel()
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_delivery(delivery: Delivery) -> None:
        acks = ((channel, delivery.tag),)
        try:
            publish = _returned(delivery)
        except ValueError as error:
            poison.note("expired-unnumbered", names.EXPIRED_UNNUMBERED, error)
            handover.submit((), acks=acks, failpoint="expired_unnumbered.return")
            return

        def done(error: BrokerError | None) -> None:
            if isinstance(error, Unroutable):
                log.warning(
                    "expired_unnumbered.dropped queue=%s reason=no such inbox", publish.routing_key
                )
                handover.submit((), acks=acks, failpoint="expired_unnumbered.return")
            elif error is not None:
                resolve(ended, error)

        handover.submit((publish,), acks=acks, done=done, failpoint="expired_unnumbered.return")

    try:
        channel.on_closed = partial(resolve, ended)
        await channel.publisher.confirm_select()
        handover = HandOver(channel)
        await channel.consumers.qos(PREFETCH)
        await channel.consumers.consume(names.EXPIRED_UNNUMBERED, on_delivery)
        await ended
    finally:
        channel.on_closed = None
        await channel.close()


def _returned(delivery: Delivery) -> Publish:
    """Return a message for its inbox: without RabbitMQ's dead-letter headers, marked as expired.

    Raises:
        ValueError: the message came from no inbox.
    """
    properties = Properties.decode(delivery.properties)
    table = properties.headers or {}
    inbox = python_value(table.get("x-first-death-queue", ("V", None)))
    if not isinstance(inbox, str) or not inbox.endswith(names.INBOX_SUFFIX):
        raise ValueError(f"the message expired in {inbox!r}, which is no inbox")
    kept = {key: field for key, field in table.items() if key not in headers.BROKER_ONLY}
    kept.setdefault(headers.KIND, text(EXPIRED_UNNUMBERED_KIND))
    if properties.user_id is not None:
        # RabbitMQ would compare the property with the bridge's own user, and refuse the message.
        kept[headers.BASIC_USER_ID] = text(properties.user_id)
    properties.headers = kept
    properties.user_id = properties.expiration = None
    raw = properties.encode()
    if len(raw) > PROPERTIES_BYTES_MAX:
        raw = _BARE
    return Publish("", inbox, raw, delivery.body)
