"""A client's peeks, which do not show messages that it has settled, as with Service Bus.

A bridge answers a peek, and knows only what is in the `$settled` stream. So the client first
publishes its settled numbers, and waits for the confirm. Before the first peek the stream does not
exist: then a peek of no message makes it, and the client publishes the numbers that it remembers,
if the entity is of the incarnation that it settled from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bridge.client.core.answers import CallbackAnswer
from bridge.client.core.directory import KnownDefinitions, guarded
from bridge.client.core.entity_receiver import EntityReceiver
from bridge.client.core.remote import Remote
from bridge.client.core.settlements import ClientSettlements
from bridge.client.core.wire import CallerFuture, Unroutable, fail
from bridge.client.exceptions import ServiceBusCommunicationError
from bridge.model.name import EntityPath
from bridge.topology.description import DescribedEntity

_Ask = Callable[[CallerFuture], None]


class Peeking:
    """Asks for peeks."""

    def __init__(
        self, directory: KnownDefinitions, remote: Remote, settlements: ClientSettlements
    ) -> None:
        self._directory = directory
        self._remote = remote
        self._settlements = settlements

    def peek(
        self,
        path: EntityPath,
        start: int,
        count: int,
        receivers: Sequence[EntityReceiver],
        answer: CallerFuture,
    ) -> None:
        """Answer with messages from a sequence number on, `count` at most.

        Args:
            receivers: this client's receivers of the entity.
        """
        ask = partial(self._remote.peek, path, start, count)
        self._tell(path, receivers, ask, answer, is_first=False)

    def _tell(
        self,
        path: EntityPath,
        receivers: Sequence[EntityReceiver],
        ask: _Ask,
        answer: CallerFuture,
        *,
        is_first: bool,
    ) -> None:
        def begin(described: DescribedEntity | None) -> None:
            for receiver in receivers:
                if described is not None:
                    receiver.update(described)
                receiver.record.begin()
            self._tell_next(list(receivers), told)

        def told(error: Exception | None) -> None:
            if error is None or (is_first and isinstance(error, Unroutable)):
                guarded(answer, ask, answer)
            elif isinstance(error, Unroutable):
                again = partial(self._tell, path, receivers, ask, answer, is_first=True)
                begun = CallbackAnswer(lambda found: guarded(answer, again), partial(fail, answer))
                guarded(answer, self._remote.peek, path, 1, 0, begun)
            else:
                busy = ServiceBusCommunicationError(f"RabbitMQ takes nothing now: {error}")
                fail(answer, busy)

        if any(receiver.record.is_silent for receiver in receivers):
            self._directory.read(path.entity, answer, begin)
        else:
            begin(None)

    def _tell_next(
        self, receivers: list[EntityReceiver], told: Callable[[Exception | None], None]
    ) -> None:
        """Publish the numbers of one queue after the other."""
        if not receivers:
            told(None)
            return

        def confirmed(error: Exception | None) -> None:
            if error is None:
                self._tell_next(receivers, told)
            else:
                told(error)

        self._settlements.tell(receivers.pop().record, confirmed)
