"""States that were decided, and are to be set by owners of sessions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from bridge.engine.transactions.state_pins import StatePin, StatePins
from bridge.model.entity import Queue
from bridge.model.errors import EntityNotFound, ServerBusy
from bridge.model.name import EntityPath
from bridge.wire.commits import NO_INQUIRY, StateOutcome

PATH = EntityPath("orders")
QUEUE = Queue(name="orders", requires_session=True)
PIN = StatePin(PATH, "s", b"new", bytes(16), StateOutcome(bytes(7), 0, NO_INQUIRY, 1, "s", b"new"))


async def test_nobody_is_told_a_state_when_its_entity_is_gone() -> None:
    """Else the bridge would ask for a session's owner each second, for ever."""
    looks = 0

    def definition(path: EntityPath) -> Queue:
        nonlocal looks
        looks += 1
        if looks > 2:
            raise EntityNotFound("deleted")
        return QUEUE

    async def find(queue: Queue, shard: int) -> None:
        raise ServerBusy("no owner")

    owners: Any = SimpleNamespace(find=find)
    async with asyncio.timeout(120):
        await StatePins(definition, owners, cast(Any, None)).carry_out(PIN)
    assert looks == 3
