"""Batch delete of a held session's messages."""

from __future__ import annotations

import asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.errors import BrokerError
from bridge.engine.sessions.messages import SessionMessages
from bridge.machine.queue.second_copies import Left

DELETES_S = 10.0
"""The time after which a batch delete answers with its count so far."""

DELETED_AT_ONCE = 100
"""The messages that are deleted before other tasks get their turn of the event loop."""

COMES_S = 0.02
"""The time between two looks for a body that is fetched again."""


async def delete(messages: SessionMessages, session_id: str, count: int, before_ms: int) -> int:
    """Settle a session's waiting messages in order; return the count of those that are gone.

    Ends at the first message enqueued at or after `before_ms`, at `count`, or after `DELETES_S`.
    Messages acked on a channel that has ended are not counted.

    Raises:
        SessionLockLost: no receiver holds the session.
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
            messages.release(holding)
            break
        messages.ack(holding, "engine.receive_and_delete.acked")
        messages.left(holding, Left.SETTLED)
        deleted += 1
        channels[holding.channel] = channels.get(holding.channel, 0) + 1
        if deleted % DELETED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return sum([acked * await _is_written(channel) for channel, acked in channels.items()])


async def _is_written(channel: Channel) -> bool:
    """Wait until all acks of a channel are written; return whether they were."""
    written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_written(error: BrokerError | None) -> None:
        if not written.done():  # the waiting caller may be cancelled
            written.set_result(error is None)

    try:
        channel.when_written(on_written)
    except BrokerError:
        return False
    return await written
