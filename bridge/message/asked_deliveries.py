"""The deliveries of a queue that are asked for, or wait behind others that are.

What waits, and the results of fetches behind it, come to the queue's machine in RabbitMQ's order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from bridge.message.asking import Asking, Inquirer
from bridge.message.departure import MoveSource
from bridge.message.fetches import Fetches, FetchResults
from bridge.message.held import Held
from bridge.message.locked_source import source_of
from bridge.message.port import Channel, Delivery
from bridge.message.wake import Wake
from bridge.wire.inquiries import Told

AChannel = TypeVar("AChannel", bound=Channel)


class AskedDeliveries(Asking, Generic[AChannel]):
    """See `Asking`; for a queue with fetches.

    Args:
        place: the queue.
        inquirer: asks the leader.
        fetches: the queue's fetches, whose results wait, too.
        on_delivery: called once more with what has waited: its fetch, channel and delivery.
        on_decided: called with a message instead, and with what is to become of it.
        wake: brings fetches in line with credit.
    """

    def __init__(
        self,
        place: MoveSource,
        inquirer: Inquirer,
        fetches: Fetches[AChannel],
        on_delivery: Callable[[int, AChannel, Any], None],
        on_decided: Callable[[Held[AChannel], Told], None],
        wake: Wake,
    ) -> None:
        front, source = place.queue.front, source_of(place)
        super().__init__(place.resource, front, source, inquirer.begin, self._passed_on)
        self.inquirer = inquirer
        self._fetches = fetches
        self._results = fetches.results
        self._behind = ResultsBehind(self, self._results)
        self._on_delivery = on_delivery
        self._on_decided = on_decided
        self._wake = wake

    def comes(self, held: Held[AChannel], delivery: Delivery, is_stray: bool) -> bool:
        """Whether a message that comes again, or behind one that waits, goes on; else it waits.

        Args:
            is_stray: it must get a number first: nobody is asked for it.
        """
        goes_on = self.goes_on(
            held,
            is_redelivered=delivery.redelivered and not is_stray,
            deliveries=0 if is_stray else held.failures - held.generation,
            again=partial(self._on_delivery, held.fetch, held.channel, delivery),
            decided=partial(self._on_decided, held),
        )
        if not goes_on:
            self._fetches.results = self._behind
        return goes_on

    def keeps_back(self, fetch: int, channel: AChannel, delivery: Delivery) -> bool:
        """Whether a message that cannot be read waits behind others; it comes once more then."""
        if not self.waits or self.is_passing:
            return False
        self.put(partial(self._again, fetch, channel, delivery))
        return True

    def lose(self) -> None:
        """Forget all that waits: RabbitMQ has taken the messages back."""
        super().lose()
        self._fetches.results = self._results

    def _again(self, fetch: int, channel: AChannel, delivery: Delivery, told: Told) -> None:
        self._on_delivery(fetch, channel, delivery)

    def _passed_on(self) -> None:
        if not self.waits:
            self._fetches.results = self._results
        self._wake.soon()


class ResultsBehind:
    """Results of fetches that come behind messages that are asked for.

    Args:
        results: who is told them then.
    """

    def __init__(self, asking: Asking, results: FetchResults) -> None:
        self._asking = asking
        self._results = results

    def closed(self, fetch: int) -> None:
        """Note that a window has ended, or that a get or look has failed."""
        self._put(self._results.closed, fetch)

    def empty(self, fetch: int) -> None:
        """Note that a get has found no message."""
        self._put(self._results.empty, fetch)

    def counted(self, ready: int) -> None:
        """Take the count of ready messages that came with a got message."""
        self._put(self._results.counted, ready)

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """Take the counts of a look."""
        self._put(self._results.looked, fetch, ready, consumers)

    def _put(self, result: Callable[..., None], *figures: int) -> None:
        self._asking.put(partial(_tell, result, figures))


def _tell(result: Callable[..., None], figures: tuple[int, ...], told: Told) -> None:
    result(*figures)
