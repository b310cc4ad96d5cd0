"""What comes to a queue while its entity's leader is asked for some of it.

A message that comes again may have been settled by a transaction, so it waits for the leader's
answer, and what comes behind it waits, too (`machine.queue.inquiries`): deliveries, and the results
of fetches, by which withdrawals and drains end. To the queue's machine it is as if RabbitMQ had
sent all that later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from bridge.machine.queue.inquiries import Inquiries, locked_message, must_ask
from bridge.message.held import Held
from bridge.message.message import Message
from bridge.wire.commits import NO_INQUIRY, LockedMessage, StateOutcome
from bridge.wire.inquiries import Told

AskedStep = Callable[[Told], None]
"""What waits: called with the outcome that is to be carried out in its place, if there is one."""


class Asking:
    """The messages of one queue that its entity's leader is asked for, and what waits behind them.

    Args:
        resource: the queue's name.
        front: the path of the queue or topic whose leader is asked.
        source: the queue's name for the leader (`message.locked_source`).
        begin: called when there is something to ask for; see `question`.
        on_passed: called when something that waited has gone on.

    Attributes:
        waits: whether anything waits.
        is_passing: whether what waited goes on now.
        inquiry: meanwhile the inquiry of what goes on.
    """

    def __init__(
        self,
        resource: str,
        front: str,
        source: bytes,
        begin: Callable[[Asking], None],
        on_passed: Callable[[], None],
    ) -> None:
        self.resource = resource
        self.front = front
        self.source = source
        self.waits = self.is_passing = False
        self.inquiry = NO_INQUIRY
        self._begin = begin
        self._on_passed = on_passed
        self._inquiries: Inquiries[AskedStep] = Inquiries()
        self._life = 0

    def __repr__(self) -> str:
        return f"Asking({self.resource!r}, {self._inquiries!r})"

    def __len__(self) -> int:
        """Return the number of steps that wait."""
        return len(self._inquiries)

    def put(self, step: AskedStep, message: Message | None = None) -> None:
        """Let a step wait.

        Args:
            message: what is to be asked for; `None`: the step only keeps its place.
        """
        asks = None if message is None else locked_message(message, self.source)
        if self._inquiries.put(step, asks):
            step(None)
            return
        self.waits = True
        if asks is not None:
            self._begin(self)

    def goes_on(
        self,
        held: Held[Any],
        *,
        is_redelivered: bool,
        deliveries: int,
        again: Callable[[], None],
        decided: Callable[[Told], None],
    ) -> bool:
        """Whether a delivered message goes on now; else it waits.

        Args:
            is_redelivered: RabbitMQ says that it was delivered before.
            deliveries: RabbitMQ's count of earlier deliveries.
            again: takes it once more when it has waited.
            decided: takes its outcome instead.
        """
        if self.is_passing:
            held.inquiry = self.inquiry
            return True
        is_asked = must_ask(
            held, is_transactional=True, is_redelivered=is_redelivered, deliveries=deliveries
        )
        if not is_asked and not self.waits:
            return True
        self.put(partial(_go_on, again, decided), held if is_asked else None)
        return False

    # The interface for whoever asks.

    def question(self, inquiry: bytes) -> list[LockedMessage]:
        """Return the messages to be asked for now; see `Inquiries.question`."""
        return self._inquiries.question(inquiry)

    def answered(self, inquiry: bytes, told: Sequence[Told]) -> None:
        """Take the answer to an inquiry, and let go on what may; raises ValueError likewise."""
        self._inquiries.answered(inquiry, told)
        life = self._life
        failure: Exception | None = None
        self.is_passing = True
        try:
            for passed in self._inquiries.take():
                if life != self._life:
                    break
                self.inquiry = passed.inquiry
                try:
                    passed.step(passed.told)
                except Exception as error:  # the others must not wait for ever
                    failure = failure or error
        finally:
            self.is_passing = False
            self.inquiry = NO_INQUIRY
            self.waits = len(self._inquiries) > 0
        self._on_passed()
        if failure is not None:
            raise failure

    def failed(self, inquiry: bytes) -> None:
        """Note that an inquiry has no answer; see `Inquiries.failed`."""
        self._inquiries.failed(inquiry)

    def lose(self) -> None:
        """Forget all that waits: RabbitMQ has taken the messages back."""
        self._life += 1
        self._inquiries.lose()
        self.waits = False


def _go_on(again: Callable[[], None], decided: Callable[[Told], None], told: Told) -> None:
    if told is None:
        again()
    else:
        decided(told)


class Inquirer(Protocol):
    """Asks leaders, and carries out what they tell."""

    def begin(self, asking: Asking) -> None:
        """Ask for what is to be asked for; repeat that until all is answered."""

    def carry_out(self, owner: Any, held: Any, told: Told, asking: Asking) -> None:
        """Settle a message as its leader has told, and tell the leader when that is done."""

    async def states(
        self, resource: str, front: str, source: bytes, shard: int
    ) -> tuple[bytes, list[StateOutcome]]:
        """Ask until it is answered which states the sessions of a shard are to get.

        Args:
            resource: the shard's queue.
            source: the states of its queue or subscription (`message.locked_source`).

        Returns:
            The name of the inquiry, and the states.
        """

    def report(self, front: str, message: LockedMessage) -> None:
        """Tell a leader that an outcome is carried out."""
