"""A commit from the time when its locks are taken to its verdict."""

from __future__ import annotations

import asyncio
from typing import Final

from bridge.engine.api import Disposition
from bridge.engine.settlement.locktable import Locked
from bridge.engine.transaction_verbs import TransactionWork
from bridge.engine.transactions.pins import LockPin
from bridge.machine.queue.locks import Lock
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError

AGAIN_S: Final = 1.0
AGAIN_MAX_S: Final = 60.0
"""The time until a leader is asked again: twice as long each time, so many seconds at most. Each
question is the whole envelope, and waits in the inbox of an entity without a leader."""


class TakenCommit:
    """A commit whose locks are taken.

    Attributes:
        taken: each lock, `None` for another bridge's, and what becomes of its message.
        told: what the client is told, as soon as that is known.
        reason: why there is no answer yet.
        may_be_stored: whether its envelope was published.
    """

    def __init__(
        self,
        work: TransactionWork,
        entity: model.SendEntity,
        body: bytes,
        taken: list[tuple[LockPin, Lock[Locked] | None, Disposition]],
    ) -> None:
        self.work = work
        self.entity = entity
        self.body = body
        self.taken = taken
        self.told: asyncio.Future[ServiceBusError | None] = (
            asyncio.get_running_loop().create_future()
        )
        self.reason = "RabbitMQ, or the entity's leader, has not answered in time"
        self.may_be_stored = False
        self._pause_s = AGAIN_S

    def pause_s(self) -> float:
        """Return how long to wait now until the leader is asked again."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, AGAIN_MAX_S)
        return pause_s

    def tell(self, error: ServiceBusError | None) -> None:
        """Tell the client, unless it is told."""
        if not self.told.done():
            self.told.set_result(error)
