"""The answers of a deferred queue's owner: an ask names numbers, the answer has lock tokens.

To an ask without numbers the answer is the numbers of all deferred messages, for peeks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.broker.failpoint import reach
from bridge.engine import texts
from bridge.engine.deferral.messages import DeferredMessages
from bridge.engine.ownership.ownership import Ask
from bridge.engine.settlement.locktable import ProcessLocks
from bridge.model.errors import MessageNotFound, MessageSizeExceeded
from bridge.model.name import SubQueue
from bridge.wire.deferred import decode_ask, encode_list, encode_locks
from bridge.wire.reply import encode_done, encode_refused

ASK_BYTES_MAX = 64 << 20
"""The most bytes of one ask's messages, which make one reply; a single message may be larger."""


class Replies:
    """Answers asks.

    An ask comes behind the messages that were deferred before it, but after a failure of RabbitMQ
    perhaps not. So a message that is missing does not exist only if the ask is the last.

    Args:
        put_last: brings an ask again, with `is_last`, when all messages have come.
        on_listed: called when the answer to an ask for all numbers is made.
    """

    def __init__(
        self,
        messages: Mapping[SubQueue, DeferredMessages],
        locks: ProcessLocks,
        put_last: Callable[[Ask], None],
        on_listed: Callable[[], None],
    ) -> None:
        self._messages = messages
        self._locks = locks
        self._put_last = put_last
        self._on_listed = on_listed

    def reply_to(self, ask: Ask) -> bytes | None:
        """Return the answer to an ask; `None` while its messages are still to come.

        Raises:
            MalformedAsk: the ask cannot be read.
        """
        numbers, of_dead_letters = decode_ask(ask.body)
        if not numbers:
            return self._listed(ask)
        messages = self._messages[SubQueue.DEAD_LETTER if of_dead_letters else SubQueue.NONE]
        if messages.index.lacks(numbers) is not None:
            if not ask.is_last:
                self._put_last(ask)
                return None
            return encode_refused(MessageNotFound.condition, texts.DEFERRED_NOT_FOUND)
        size_bytes = messages.index.size_bytes(numbers)
        if size_bytes > ASK_BYTES_MAX and len(numbers) > 1:
            text = texts.asked_too_large(len(numbers), size_bytes, ASK_BYTES_MAX)
            return encode_refused(MessageSizeExceeded.condition, text)
        channel = ask.delivery.channel
        for tag in messages.index.fetch(numbers):
            channel.nack(tag)
            reach("engine.deferred.returned", channel)
        return self._locked(messages, numbers)

    def _listed(self, ask: Ask) -> bytes | None:
        if not ask.is_last:
            self._put_last(ask)
            return None
        self._on_listed()
        own, dead = self._messages[SubQueue.NONE], self._messages[SubQueue.DEAD_LETTER]
        return encode_done(encode_list(sorted(own.numbers()), sorted(dead.numbers())))

    def _locked(self, messages: DeferredMessages, numbers: list[int]) -> bytes | None:
        holdings = messages.index.take(numbers)
        if holdings is None:
            return None
        messages.out.update(holdings)
        duration_ms = messages.queue.lock_duration_ms
        locks = [self._locks.acquire(messages, holding, duration_ms) for holding in holdings]
        return encode_done(encode_locks(locks))
