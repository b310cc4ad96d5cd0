"""Looks for others who receive from a queue of which this process keeps messages (before 4.3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bridge.broker.errors import BrokerError
from bridge.engine.fetching import Fetching
from bridge.engine.holding import Holding
from bridge.machine.company import Company
from bridge.machine.demand import Demand

log = logging.getLogger(__name__)


class Lookout:
    """Asks RabbitMQ, and tells when somebody else should have what is kept.

    Args:
        resource: the queue.
        on_others: called then.
    """

    def __init__(
        self,
        resource: str,
        *,
        demand: Demand[Holding],
        fetching: Fetching,
        on_others: Callable[[], None],
    ) -> None:
        self._resource = resource
        self._demand = demand
        self._fetching = fetching
        self._on_others = on_others
        self._company = Company()
        self._last_look_s = 0.0

    async def look(self) -> None:
        """Look, if anything is kept that nobody asks for here."""
        channel, demand = self._fetching.channel, self._demand
        if channel is None or not demand.kept or demand.asked:
            self._company.forget()
            return
        own = demand.consumers
        try:
            state = await channel.declare_queue(self._resource, passive=True)
        except BrokerError:
            return
        is_quiet = (
            self._fetching.last_arrival_s < self._last_look_s and demand.next_expiry_ms() is None
        )
        self._last_look_s = asyncio.get_running_loop().time()
        others = max(state.consumers - own, 0)
        has_come = self._company.looked(others, state.messages, is_quiet=is_quiet)
        if has_come and demand.kept and not demand.asked:
            log.info("source.given-up entity=%s kept=%d", self._resource, demand.kept)
            self._on_others()
