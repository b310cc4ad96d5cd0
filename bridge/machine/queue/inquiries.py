"""What is on its way to a queue's receivers, in order, while some of it is asked for.

A message that comes again may have been settled by a transaction whose bridge was killed before it
acked the message (`machine.inbox.decided`). So its entity's leader is asked before a receiver gets
it, and before it expires or counts as failed. All that is behind it waits, ends of withdrawals and
drains, too: one question is under way at a time, and what comes meanwhile is in the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from zlib import crc32

from bridge.machine.queue.second_copies import Identity, digest
from bridge.wire.commits import NO_INQUIRY, LockedMessage
from bridge.wire.inquiries import MESSAGES_MAX, Told

Step = TypeVar("Step")


class AskableMessage(Protocol):
    """A delivered message, as an inquiry sees it; see `message.message.Message`."""

    number: int
    identity: Identity
    generation: int

    @property
    def deaths(self) -> int:
        """How often the message was dead-lettered before."""


def must_ask(
    message: AskableMessage, *, is_transactional: bool, is_redelivered: bool, deliveries: int
) -> bool:
    """Whether a message that has come may have been settled by a transaction.

    Args:
        is_transactional: its entity ever had a transaction.
        is_redelivered: RabbitMQ says that it was delivered before.
        deliveries: RabbitMQ's count of earlier deliveries.
    """
    return is_transactional and message.number >= 0 and (is_redelivered or deliveries > 0)


def locked_message(message: AskableMessage, source: bytes) -> LockedMessage:
    """Return a message as its leader knows it.

    One that an operator has brought back from the dead-letter queue is another one: what was
    decided about the first does not concern it.

    Args:
        source: its queue (`wire.commits.source_in`).
    """
    raw = digest(message.identity) + bytes((message.deaths & 0xFF,))
    return LockedMessage(source, message.number, crc32(raw), message.generation)


@dataclass(frozen=True, slots=True)
class Passed(Generic[Step]):
    """What goes on now.

    Attributes:
        told: the outcome to be carried out in its place; `None`: there is none.
        inquiry: the inquiry that it was asked for in, or `NO_INQUIRY`.
    """

    step: Step
    told: Told = None
    inquiry: bytes = NO_INQUIRY


class _Waiting(Generic[Step]):
    """A step that waits.

    Attributes:
        asks: the message that is to be asked for; `None`: it waits behind another one, or is told.
    """

    __slots__ = ("asks", "passed")

    def __init__(self, step: Step, asks: LockedMessage | None) -> None:
        self.asks = asks
        self.passed = Passed(step)


class Inquiries(Generic[Step]):
    """The steps of one queue that wait for an answer, or behind one that does."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting[Step]] = deque()
        self._unasked: deque[_Waiting[Step]] = deque()
        self._batch: list[_Waiting[Step]] = []
        self._inquiry = NO_INQUIRY

    def __repr__(self) -> str:
        return f"<Inquiries: {len(self._waiting)} wait, {len(self._batch)} are asked for>"

    def __len__(self) -> int:
        """Return the number of steps that wait."""
        return len(self._waiting)

    def put(self, step: Step, asks: LockedMessage | None) -> bool:
        """Take a step; return whether it goes on at once.

        Args:
            asks: the message to be asked for before; `None`: it only keeps its place.
        """
        if asks is None and not self._waiting:
            return True
        waiting = _Waiting(step, asks)
        self._waiting.append(waiting)
        if asks is not None:
            self._unasked.append(waiting)
        return False

    def question(self, inquiry: bytes) -> list[LockedMessage]:
        """Return the messages to be asked for now; none while a question is under way.

        Args:
            inquiry: the name of the inquiry that asks for them.
        """
        if self._batch or not self._unasked:
            return []
        self._inquiry = inquiry
        unasked = self._unasked
        self._batch = [unasked.popleft() for _ in range(min(len(unasked), MESSAGES_MAX))]
        return [each.asks for each in self._batch if each.asks is not None]

    def answered(self, inquiry: bytes, told: Sequence[Told]) -> None:
        """Take the answer to an inquiry; one that is not under way any more changes nothing.

        Raises:
            ValueError: the answer is not that of so many messages.
        """
        if inquiry != self._inquiry:
            return
        if len(told) != len(self._batch):
            raise ValueError(f"an answer of {len(told)} to an inquiry for {len(self._batch)}")
        for waiting, each in zip(self._batch, told, strict=True):
            waiting.asks = None
            waiting.passed = Passed(waiting.passed.step, each, inquiry)
        self._batch = []
        self._inquiry = NO_INQUIRY

    def failed(self, inquiry: bytes) -> None:
        """Note that an inquiry has no answer: the next question asks for its messages again."""
        if inquiry != self._inquiry:
            return
        self._unasked.extendleft(reversed(self._batch))
        self._batch = []
        self._inquiry = NO_INQUIRY

    def take(self) -> list[Passed[Step]]:
        """Take out what goes on now, in order."""
        found: list[Passed[Step]] = []
        while self._waiting and self._waiting[0].asks is None:
            found.append(self._waiting.popleft().passed)
        return found

    def lose(self) -> list[Step]:
        """Take out all that waits, in order: RabbitMQ has taken the messages back.

        What is no message among it goes on; an answer that comes later changes nothing.
        """
        kept = [each.passed.step for each in self._waiting]
        self._waiting.clear()
        self._unasked.clear()
        self._batch = []
        self._inquiry = NO_INQUIRY
        return kept
