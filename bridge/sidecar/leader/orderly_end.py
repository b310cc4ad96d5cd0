"""A term that hands its inbox over: all that it has published is confirmed before it ends.

A publication that is not confirmed is published again by the next term, as RabbitMQ may not have
it. When it has, that is a second copy, and a bridge other than the next leader's does not know
whether the first one is settled. So a term that another bridge is to follow does not end by a
clock:

    leads -> pauses (no new numbers) -> all confirmed, the marker last -> the end
      ^         |
      +---------+ RabbitMQ is too slow: it leads on, and tries later, for longer

Only the stop of its process, and a failure, end a term with unconfirmed publications.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine

from bridge.background.waits import Waits
from bridge.broker.errors import BrokerError
from bridge.broker.handover import Publish
from bridge.sidecar.leader.in_flight import InFlight
from bridge.sidecar.leader.leader_state import TermOver

PAUSE_MIN_S = 2.0
PAUSE_MAX_S = 30.0
"""The shortest and the longest pause of a term for the confirms of its publications. The term leads
on for as long before it tries again; each pause is twice as long as the last one. 30 s is longer
than a publication waits for its confirm (`broker.connection.publisher.CONFIRM_TIMEOUT_S`)."""

Start = Callable[[Coroutine[None, None, None]], object]

log = logging.getLogger(__name__)


class OrderlyEnd:
    """Ends one term in order.

    Args:
        name: the entity's path.
        in_flight: the term's publications.
        marker: the term's commit marker.
        may_mark: whether no publication of the term has failed, so that a marker is true.
        note: called before the marker: writes to the journal what only the memory knows.
        waits: takes note of a pause, for health.
        start: runs work for as long as the term lasts.
        on_over: called with the reason when the term has ended in order.
        on_leading_on: called when the term gives numbers again.

    Attributes:
        is_pausing: the term gives no numbers now, and begins nothing beside its publications.
    """

    def __init__(
        self,
        name: str,
        in_flight: InFlight,
        *,
        marker: Publish,
        may_mark: Callable[[], bool],
        note: Callable[[], None],
        waits: Waits,
        start: Start,
        on_over: Callable[[TermOver], None],
        on_leading_on: Callable[[], None],
    ) -> None:
        self.is_pausing = False
        self._name = name
        self._in_flight = in_flight
        self._marker = marker
        self._may_mark = may_mark
        self._note = note
        self._waits = waits
        self._start = start
        self._on_over = on_over
        self._on_leading_on = on_leading_on
        self._has_begun = False
        self._marked = 0
        self._beside = 0
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"OrderlyEnd({self._name!r}, is_pausing={self.is_pausing})"

    def begin(self, over: TermOver) -> None:
        """End the term as soon as all its publications are confirmed; a second call does nothing.

        The term gives no numbers from now on, until this leads on.
        """
        if not self._has_begun:
            self._has_begun = True
            self.pause()
            self._start(self._hand_over(over))

    def pause(self) -> None:
        """Give no numbers, and begin nothing beside the term's publications."""
        self.is_pausing = True

    @contextlib.asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Publish on another channel, for the term: it does not settle before that is over.

        Waits while the term pauses.
        """
        while self.is_pausing:
            self._changed.clear()
            await self._changed.wait()
        self._beside += 1
        try:
            yield
        finally:
            self._beside -= 1
            self._changed.set()

    async def settle(self, *, beside_s: float | None = None) -> bool:
        """Wait until all publications are confirmed or have failed; then write the commit marker.

        Args:
            beside_s: how long to wait for what is published beside; `None`: until it is confirmed
                or has failed. What has no confirm by then is published again, to its
                subscription alone.

        Returns:
            Whether the journal says that all publications have reached their queues. Without that
            the next leader publishes again what is not acked.
        """
        in_flight = self._in_flight
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(beside_s):
                while self._beside:
                    self._changed.clear()
                    await self._changed.wait()
        with contextlib.suppress(BrokerError):
            if self._may_mark():
                self._note()
            while True:
                await in_flight.settle()
                if not self._may_mark():
                    return False
                submitted = in_flight.submitted
                if submitted == self._marked:
                    return True
                await in_flight.move(self._marker, site="sequencer.journal")
                self._marked = submitted
        return False

    async def _hand_over(self, over: TermOver) -> None:
        pause_s = PAUSE_MIN_S
        reason = f"{over}, once RabbitMQ has confirmed all that this leader published"
        with self._waits.begin(self._name, reason):
            while not await self._settled(pause_s):
                self.is_pausing = False
                self._changed.set()
                log.info("sequencer.leads_on entity=%s waits=%s", self._name, over)
                self._on_leading_on()
                await asyncio.sleep(pause_s)
                self.pause()
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
        self._on_over(over)

    async def _settled(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                return await self.settle()
        return False
