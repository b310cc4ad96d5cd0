"""The hand-over of messages that leave their queues (`message.departure`), by this bridge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from bridge.background.tasks import Tasks
from bridge.broker.errors import AckLost, BrokerError, NotStored, is_refused
from bridge.broker.failpoint import reach
from bridge.broker.outcome import resolve
from bridge.engine import texts
from bridge.engine.clock import later
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.held_message import Copy, HeldMessage
from bridge.machine.inbox.publication import Publication
from bridge.message import moves
from bridge.message.departure import Ended, Outcome, Told
from bridge.message.end_rules import MessagePlace
from bridge.message.moves import Move
from bridge.model.errors import ArgumentOutOfRange, ServiceBusError


class BridgeHandOver:
    """See `message.departure.HandOver`.

    Args:
        on_missing: called with an entity's path when one of its queues or streams is missing.
    """

    passing: tuple[type[Exception], ...] = (ServiceBusError, BrokerError)

    def __init__(self, sender: Sender, on_missing: Callable[[str], None]) -> None:
        self._sender = sender
        self._on_missing = on_missing
        self._showing = Tasks()

    def begin(
        self, source: MessagePlace, held: HeldMessage, publishes: Move, point: str, ended: Ended
    ) -> None:
        """Publish, and ack the message when everything is confirmed."""
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        moved.add_done_callback(partial(self._ended, source, publishes[0].routing_key, ended))
        acks = ((held.channel, held.tag),)
        self._sender.hand_over(publishes, acks=acks, done=partial(resolve, moved), failpoint=point)

    def show(self, entry: Publication, told: Told) -> None:
        """Publish for peeks that a message whose move was refused is where it was."""
        reach("engine.move.refused")
        self._showing.start(self._show(entry, told))

    def ack(self, held: HeldMessage | Copy, point: str) -> None:
        """Ack a message that is not handed over; `point` is the failpoint behind the ack."""
        held.channel.ack(held.tag)
        reach(point, held.channel)

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        """Call a function later."""
        later(wait_s, call)

    def too_large(self, path: str, size_bytes: int) -> ArgumentOutOfRange:
        """Return the error for properties that RabbitMQ does not take."""
        text = texts.properties_too_large(path, size_bytes, moves.PROPERTIES_BYTES_MAX)
        return ArgumentOutOfRange(text)

    def _ended(
        self, source: MessagePlace, target: str, ended: Ended, moved: asyncio.Future[None]
    ) -> None:
        error = moved.exception()
        # A missing queue or stream was deleted by hand.
        if isinstance(error, BrokerError) and error.is_missing:
            self._on_missing(source.queue.path)
        if error is None:
            ended(Outcome.MOVED, None)
        else:
            assert isinstance(error, BrokerError)
            ended(_outcome(error, target), error)

    async def _show(self, entry: Publication, told: Told) -> None:
        try:
            await self._sender.publish(*entry)
        except self.passing as error:
            told(error)
        else:
            told(None)


def _outcome(error: BrokerError, target: str) -> Outcome:
    """Return the outcome of a hand-over that failed; `target` is the queue that the message is for.

    Whether the stream for peeks, the second target, has the message need not be known.
    """
    if isinstance(error, AckLost):
        return Outcome.ACK_LOST
    is_of_queue = isinstance(error, NotStored) and f"with key {target!r}" in error.text
    if not is_of_queue and not is_refused(error):
        return Outcome.UNKNOWN
    return Outcome.SHOWN if error.is_partial else Outcome.HERE
