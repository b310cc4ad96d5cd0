"""What others ask of whoever holds an entity's deferred messages: locks, by numbers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.deferral.messages import DeferredMessages, reach
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.locktable import LockTable
from bridge.model.errors import MessageNotFound, MessageSizeExceeded
from bridge.model.name import SubQueue
from bridge.wire.basic import Properties
from bridge.wire.deferred import decode_ask, encode_locks
from bridge.wire.reply import encode_done, encode_refused

ASK_BYTES_MAX = 64 << 20
"""What the messages of one ask may weigh together, but for a single one: they make one reply."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Ask:
    delivery: Delivery
    reply_to: str
    correlation_id: str
    numbers: list[int]
    sub_queue: SubQueue


class Asks:
    """The asks that are not answered yet, in order.

    Attributes:
        complete_s: when all that is deferred has come here (the loop's clock); what is missing
            then is not there. After a failure of RabbitMQ an ask may come before its messages.
        asked_s: when the last one came.
    """

    def __init__(
        self,
        resource: str,
        messages: Mapping[SubQueue, DeferredMessages],
        sender: Sender,
        locks: LockTable,
    ) -> None:
        self.complete_s = 0.0
        self.asked_s = 0.0
        self._resource = resource
        self._messages = messages
        self._sender = sender
        self._locks = locks
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Ask] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def clear(self) -> None:
        """Forget all: they come to whoever holds the messages next."""
        self._waiting.clear()

    def take(self, delivery: Delivery, properties: Properties) -> None:
        """Take an ask, to be answered in its turn.

        Raises:
            MalformedAsk: it is none.
        """
        numbers, of_dead_letters = decode_ask(delivery.body)
        self.asked_s = self._loop.time()
        sub_queue = SubQueue.DEAD_LETTER if of_dead_letters else SubQueue.NONE
        reply_to, number = properties.reply_to or "", properties.correlation_id or ""
        self._waiting.append(_Ask(delivery, reply_to, number, numbers, sub_queue))

    def serve(self) -> None:
        """Answer what can be answered, in order."""
        for ask in list(self._waiting):
            reply = self._reply_to(ask)
            if reply is None:
                continue
            self._waiting.remove(ask)
            try:
                self._sender.answer(ask.reply_to, ask.correlation_id, reply)
            except BrokerError as error:
                log.warning("deferred.unanswered queue=%s error=%s", self._resource, error)
            ask.delivery.channel.consumers.ack(ask.delivery.tag)
            reach("engine.deferred.answered", ask.delivery.channel)

    def _reply_to(self, ask: _Ask) -> bytes | None:
        """Return the answer, or `None` while there is none."""
        messages = self._messages[ask.sub_queue]
        if messages.index.lacks(ask.numbers) is not None:
            wait_s = self.complete_s - self._loop.time()
            if wait_s > 0:
                self._loop.call_later(wait_s, self.serve)
                return None
            return encode_refused(MessageNotFound.condition, texts.DEFERRED_NOT_FOUND)
        size_bytes = messages.index.size_bytes(ask.numbers)
        if size_bytes > ASK_BYTES_MAX and len(ask.numbers) > 1:
            text = texts.asked_too_large(len(ask.numbers), size_bytes, ASK_BYTES_MAX)
            return encode_refused(MessageSizeExceeded.condition, text)
        for tag in messages.index.fetch(ask.numbers):
            ask.delivery.channel.consumers.nack(tag, False, True)
            reach("engine.deferred.returned", ask.delivery.channel)
        return self._locked(messages, ask.numbers)

    def _locked(self, messages: DeferredMessages, numbers: list[int]) -> bytes | None:
        holdings = messages.index.take(numbers)
        if holdings is None:
            return None
        messages.out.update(holdings)
        duration_ms = messages.queue.lock_duration_ms
        locks = [self._locks.acquire(messages, holding, duration_ms) for holding in holdings]
        return encode_done(encode_locks(locks))
