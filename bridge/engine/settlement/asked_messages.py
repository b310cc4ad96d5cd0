"""What the owner of a shard's, or an entity's deferred messages, asks its leader for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.engine.settlement.owner import Owner
from bridge.message.asking import Asking, Inquirer
from bridge.message.locked_source import source_of


class AskedMessages(Asking):
    """See `Asking`; its owner may wait until nothing waits any more.

    Args:
        owner: whose messages they are; of several any one.
        on_passed: called when something that waited has gone on.
    """

    def __init__(self, owner: Owner, inquirer: Inquirer, on_passed: Callable[[], None]) -> None:
        front, source = owner.queue.front, source_of(owner)
        super().__init__(owner.resource, front, source, inquirer.begin, self._passed_on)
        self._on_owner = on_passed
        self._changed = asyncio.Event()

    async def idle(self) -> None:
        """Wait until nothing waits."""
        while self.waits:
            self._changed.clear()
            await self._changed.wait()

    def lose(self) -> None:
        """Forget all that waits: RabbitMQ has taken the messages back."""
        super().lose()
        self._changed.set()

    def _passed_on(self) -> None:
        self._changed.set()
        self._on_owner()
