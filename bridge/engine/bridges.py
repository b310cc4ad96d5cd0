"""The running bridges of a virtual host."""

from __future__ import annotations

from collections.abc import Callable, Collection

from bridge.background.shared import Shared
from bridge.broker.management.api import Management
from bridge.engine.settlement.locktable import ProcessLocks
from bridge.topology import names


class Bridges:
    """Lists the running bridges; those who ask at the same time share a list.

    Each bridge binds its own queue to the exchange of administration. These bindings are listed in
    2 ms, all names of queues in 150 ms where there are 5,000. When this bridge's own binding is
    missing, somebody has deleted the exchange: then the queues are listed.

    Args:
        heard: returns the bridges that this one has heard of (`Membership.heard`).
    """

    def __init__(
        self,
        management: Management,
        locks: ProcessLocks,
        heard: Callable[[], Collection[bytes] | None],
    ) -> None:
        self._management = management
        self._locks = locks
        self._heard = heard
        self._listing: Shared[None, list[bytes]] = Shared(self._list)

    async def __call__(self) -> list[bytes]:
        """Return the names of all running bridges, as they are in lock tokens.

        Raises:
            BrokerError: RabbitMQ cannot list them.
        """
        return list(await self._listing.of())

    async def others(self) -> list[bytes]:
        """Return the names of all running bridges but this one; raises likewise."""
        return [each for each in await self() if each != self._locks.instance]

    async def known(self) -> Collection[bytes]:
        """Return the other bridges as far as they are known without a list, else `others`.

        One that has begun just now may be missing: what none of these has, a bridge may have all
        the same. Raises likewise.
        """
        heard = self._heard()
        return await self.others() if heard is None else heard

    async def _list(self, asked: list[None]) -> list[bytes]:
        rows = await self._management.bindings_from(names.ADMINISTRATION)
        queues = [row["destination"] for row in rows if row["destination_type"] == "queue"]
        if names.bridge_queue(self._locks.instance) not in queues:
            queues = await self._management.queues_below(names.BRIDGE_QUEUES)
        return [names.instance_of(each) for each in queues if each.startswith(names.BRIDGE_QUEUES)]
