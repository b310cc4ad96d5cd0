"""The AMQP methods that one channel sends, and RabbitMQ's answers to them.

Questions may be pipelined. RabbitMQ answers in order, except that a queue's process sends
consume-ok itself. An answer therefore goes to the oldest question that expects its method number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from bridge.broker.connection.transport import Transport
from bridge.broker.errors import BrokerError, BrokerSilent, ChannelClosed
from bridge.wire.amqp091 import BASIC_CONSUME_OK, BASIC_GET_EMPTY, BASIC_GET_OK, method_frame

RPC_TIMEOUT_S = 30.0
"""How long an answer may take: longer than a leader election, shorter than a client waits."""

_OF_QUEUES = frozenset((BASIC_CONSUME_OK, BASIC_GET_OK, BASIC_GET_EMPTY))
"""Answers that come from a queue's own process. RabbitMQ ends the whole connection (541) when the
process gives none: its Raft server is stopped, or has no leader within half a minute."""


class PendingCall:
    """A method that was sent and whose answer is due."""

    __slots__ = ("answers", "future", "timer")

    def __init__(self, answers: tuple[int, ...], future: asyncio.Future[Any]) -> None:
        self.answers = answers
        self.future = future
        self.timer: asyncio.TimerHandle | None = None

    def resolve(self, value: object) -> bool:
        """Set the answer; return False when the future is already done (cancelled, say)."""
        if self.timer is not None:
            self.timer.cancel()
        if self.future.done():
            return False
        self.future.set_result(value)
        return True

    def fail(self, error: BrokerError) -> None:
        """Set an error as the answer, unless the future is already done."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_exception(error)
            # Marks the error as retrieved: asyncio warns of errors that no task has awaited.
            self.future.exception()


class Calls:
    """The method calls of one channel; the channel's other parts use them.

    Attributes:
        number: the channel's number.
        transport: writes the channel's frames.
        close_reason: why the channel takes no more calls; None while the channel is open.
        before_write: called before each method; writes the frames that must precede it (acks).
        give_up: closes the channel for a reason of the bridge's own.
    """

    def __init__(
        self,
        transport: Transport,
        number: int,
        give_up: Callable[[BrokerError], None],
        timeout_s: float,
    ) -> None:
        self.number = number
        self.transport = transport
        self.close_reason: BrokerError | None = None
        self.before_write: Callable[[], None] = _nothing
        self.give_up = give_up
        self._timeout_s = timeout_s
        self._questions: deque[PendingCall] = deque()
        self._has_left_asking = False

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is due."""
        return bool(self._questions)

    @property
    def awaits_queue(self) -> bool:
        """Whether a queue was asked something (consume, get) and has not answered yet."""
        return self._has_left_asking or any(
            not _OF_QUEUES.isdisjoint(question.answers) for question in self._questions
        )

    def ask(
        self,
        method: int,
        *arguments: object,
        answers: tuple[int, ...] = (),
        future: asyncio.Future[Any] | None = None,
    ) -> asyncio.Future[Any]:
        """Write a method and return a future of its answer; the caller may ignore the future.

        Args:
            answers: numbers of the methods that answer it; by default the next number.
            future: the future to use and return, in place of a new one.
        """
        frame = method_frame(self.number, method, *arguments)
        if self.close_reason is not None:
            raise self.close_reason.again()
        loop = self.transport.loop
        question = PendingCall(answers or (method + 1,), future or loop.create_future())
        question.timer = loop.call_later(self._timeout_s, self._expire, question)
        self._questions.append(question)
        self.before_write()
        self.transport.write(frame)
        return question.future

    def say(self, method: int, *arguments: object) -> None:
        """Write a method that has no answer."""
        if self.close_reason is not None:
            raise self.close_reason.again()
        self.before_write()
        self.transport.write(method_frame(self.number, method, *arguments))

    def close(self, error: BrokerError) -> None:
        """Refuse all further calls with this error."""
        self._has_left_asking = self.awaits_queue
        self.close_reason = error

    def notify(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call a callback; an exception in it closes the channel, not the connection."""
        try:
            callback(*arguments)
        except Exception as error:
            self.blame(error)

    def blame(self, error: Exception) -> None:
        """Close the channel because a callback failed: its messages may be unhandled.

        RabbitMQ then returns the channel's unsettled messages to their queues.
        """
        self.transport.loop.call_exception_handler(
            {"message": f"a callback of channel {self.number} failed", "exception": error}
        )
        failure = ChannelClosed(text=f"a callback of the bridge failed: {error!r}")
        failure.__cause__ = error
        self.give_up(failure)

    def _expire(self, question: PendingCall) -> None:
        names = ", ".join(f"{answer >> 16}.{answer & 0xFFFF}" for answer in question.answers)
        question.fail(BrokerSilent(text=f"RabbitMQ sent no {names} within {self._timeout_s:g} s"))

    def take(self, number: int) -> PendingCall:
        """Remove and return the question that a method answers; ValueError when there is none."""
        for index, question in enumerate(self._questions):
            if number in question.answers:
                del self._questions[index]
                if number in _OF_QUEUES:
                    self.transport.queue_answers += 1
                return question
        raise ValueError(f"method {number >> 16}.{number & 0xFFFF} answers nothing")

    def fail(self, error: Callable[[], BrokerError]) -> None:
        """Fail all open questions, each with a new error from `error`."""
        while self._questions:
            self._questions.popleft().fail(error())


def _nothing() -> None:
    pass
