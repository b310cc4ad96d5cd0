"""Messages of a session deleted in batches, by whoever holds its lock."""

from __future__ import annotations

import asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.errors import BrokerError
from bridge.engine.sessions.messages import SessionMessages
from bridge.machine.deduplicator import Left

DELETES_S = 10.0
"""A batch delete that takes longer answers what it has done."""

DELETED_AT_ONCE = 100
"""Messages that are deleted before others have their turn of the event loop."""

COMES_S = 0.02
"""So often it is looked whether a body that RabbitMQ is to bring again has come."""


async def delete(messages: SessionMessages, session_id: str, count: int, before_ms: int) -> int:
    """Settle what waits in a session, in order, until one came too late; return how many.

    Raises:
        SessionLockLost: nobody holds it.
    """
    messages.check(session_id)
    deleted = 0
    channels: dict[Channel, int] = {}
    loop = asyncio.get_running_loop()
    end_s = loop.time() + DELETES_S
    while deleted < count and loop.time() < end_s:
        holding = messages.take(session_id)
        if holding is None:
            if not messages.machine.has_more(session_id):
                break
            await asyncio.sleep(COMES_S)
            continue
        if holding.enqueued_ms >= before_ms:
            messages.put_back(holding)
            break
        messages.ack(holding, "engine.receive_and_delete.acked")
        messages.left(holding, Left.SETTLED)
        deleted += 1
        channels[holding.channel] = channels.get(holding.channel, 0) + 1
        if deleted % DELETED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return sum([acked * await _is_written(channel) for channel, acked in channels.items()])


async def _is_written(channel: Channel) -> bool:
    """Wait until all acks of a channel are with RabbitMQ; whether they are."""
    written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_written(error: BrokerError | None) -> None:
        if not written.done():  # whoever asked may be gone
            written.set_result(error is None)

    try:
        channel.when_written(on_written)
    except BrokerError:
        return False
    return await written
