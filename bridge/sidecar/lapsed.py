"""What expired in an inbox before it got a number: back to that inbox, to be numbered as expired.

A native publisher's `expiration` also runs while its message waits in the inbox. RabbitMQ then
dead-letters it to one queue that all inboxes share. The entity's own rule (dead-letter or drop) is
the sequencer's to apply.
"""

from __future__ import annotations

import asyncio
import logging

from bridge.broker.connection import Connection
from bridge.broker.delivery import Delivery
from bridge.broker.errors import BrokerError, Unroutable
from bridge.broker.handover import HandOver, Publish
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.basic import Properties
from bridge.wire.envelope import LAPSED_KIND

PREFETCH = 200

log = logging.getLogger(__name__)


async def return_lapsed(connection: Connection) -> None:
    """Hand lapsed messages back to their inboxes for as long as the channel lives."""
    channel = await connection.channel()
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: BrokerError) -> None:
        if not ended.done():
            ended.set_exception(error)

    def on_delivery(delivery: Delivery) -> None:
        publish = _returned(delivery)
        acks = ((channel, delivery.tag),)

        def done(error: BrokerError | None) -> None:
            if isinstance(error, Unroutable):
                log.warning("lapsed.dropped queue=%s reason=no such inbox", publish.routing_key)
                handover.submit((), acks=acks, failpoint="lapsed.return")
            elif error is not None:
                fail(error)

        handover.submit((publish,), acks=acks, done=done, failpoint="lapsed.return")

    try:
        channel.on_closed = fail
        await channel.confirm_select()
        handover = HandOver(channel)
        await channel.qos(PREFETCH)
        await channel.consume(names.LAPSED, on_delivery)
        await ended
    finally:
        channel.on_closed = None
        await channel.close()


def _returned(delivery: Delivery) -> Publish:
    """Return the message as it goes back: without its death, marked as lapsed."""
    properties = Properties.decode(delivery.properties)
    table = properties.headers or {}
    inbox = table.get("x-first-death-queue", ("S", b""))[1]
    kept = {key: field for key, field in table.items() if key not in headers.BROKER_ONLY}
    kept.setdefault(headers.KIND, ("S", LAPSED_KIND.encode()))
    properties.headers, properties.expiration = kept, None
    routing_key = inbox.decode() if isinstance(inbox, bytes) else ""
    return Publish("", routing_key, properties.encode(), delivery.body)
