"""The forwarders of this process: one for each forwarding entity that this process leads.

An entity with a transfer queue has another one, for what its transactions send to others.

The leader of a queue or topic forwards its messages, too: so a source has one forwarder at a time,
and the order is kept. A leader that ends first forwards the messages that it holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from bridge.background.tasks import Tasks
from bridge.engine.forwarding.forwarder import Forwarder
from bridge.engine.forwarding.transfer_forwarder import TransferForwarder
from bridge.model import entity as model
from bridge.model.availability import refusal_of_receives
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology.definitions import incarnation_of
from bridge.topology.entity_table import Changes

MakeForwarder = Callable[[EntityPath, model.ReceiveEntity], Forwarder]
MakeTransferForwarder = Callable[[str], TransferForwarder]
_Key = tuple[str, SubQueue]

log = logging.getLogger(__name__)


class Forwarding:
    """Starts and ends forwarders, as leadership and definitions change.

    Args:
        make: starts and returns a forwarder.
        make_transfers: starts and returns the forwarder of a queue's or topic's transfer queue.
    """

    def __init__(self, make: MakeForwarder, make_transfers: MakeTransferForwarder) -> None:
        self._make = make
        self._make_transfers = make_transfers
        self._transfers: dict[str, TransferForwarder] = {}
        self._sources: dict[_Key, model.ReceiveEntity] = {}
        self._of_front: dict[str, set[_Key]] = {}
        self._led: set[str] = set()
        self._forwarders: dict[_Key, Forwarder] = {}
        self._closing: dict[_Key, asyncio.Task[None]] = {}
        self._tasks = Tasks()
        self._is_closed = False

    def __repr__(self) -> str:
        count, transfers = len(self._forwarders), len(self._transfers)
        return f"Forwarding({count} forwarders, {transfers} of transfers)"

    def lead(self, front: str) -> None:
        """Forward from a queue or topic: this process is its leader from now on."""
        self._led.add(front.lower())
        self._adjust(self._of_front.get(front.lower(), ()))

    def transfer(self, front: str) -> None:
        """Forward what transactions send to others: the entity has a transfer queue."""
        if front.lower() not in self._transfers and not self._is_closed:
            log.info("transfer.begins entity=%s", front)
            self._transfers[front.lower()] = self._make_transfers(front)

    async def leave(self, front: str) -> None:
        """Stop forwarding from a queue or topic; wait until its forwarders have ended."""
        self._led.discard(front.lower())
        if (transfers := self._transfers.pop(front.lower(), None)) is not None:
            await transfers.close()
        self._adjust(self._of_front.get(front.lower(), ()))
        ending = [
            task
            for (path, _), task in self._closing.items()
            if path == front.lower() or path.startswith(f"{front.lower()}/subscriptions/")
        ]
        if ending:
            await asyncio.wait(ending)

    def follow(self, changes: Changes) -> None:
        """Take over changed definitions: start, change and end forwarders."""
        there = dict(changes.receivable)
        changed = [
            (path, sub_queue)
            for path in there.keys() | changes.before.keys()
            for sub_queue in (SubQueue.NONE, SubQueue.DEAD_LETTER)
        ]
        for key in changed:
            self._put(key, there.get(key[0]))
            forwarder, entity = self._forwarders.get(key), self._sources.get(key)
            if forwarder is None:
                continue
            if entity is None or incarnation_of(entity) != incarnation_of(forwarder.entity):
                self._end(key)
            else:
                forwarder.entity = entity
        self._adjust(changed)

    def _put(self, key: _Key, entity: model.ReceiveEntity | None) -> None:
        """Put or remove an entity, or its dead-letter sub-queue, as a source."""
        before = self._sources.pop(key, None)
        if before is not None:
            of_front = self._of_front[before.front.lower()]
            of_front.discard(key)
            if not of_front:
                del self._of_front[before.front.lower()]
        if entity is None or not target_of(entity, key[1]):
            return
        if refusal_of_receives(entity) is None:
            self._sources[key] = entity
            self._of_front.setdefault(entity.front.lower(), set()).add(key)

    async def close(self) -> None:
        """End all forwarders."""
        self._is_closed = True
        self._adjust(self._sources)
        transfers, self._transfers = self._transfers, {}
        await asyncio.gather(*(each.close() for each in transfers.values()))
        await asyncio.gather(*self._closing.values(), return_exceptions=True)

    def _adjust(self, keys: Iterable[_Key]) -> None:
        """Start the missing forwarders of these, and end those that are not wanted any more."""
        for key in list(keys):
            entity = self._sources.get(key)
            if entity is None or entity.front.lower() not in self._led or self._is_closed:
                if key in self._forwarders:
                    self._end(key)
            elif key not in self._forwarders and key not in self._closing:
                log.info("forward.begins entity=%s/%s", entity.path, key[1].value)
                self._forwarders[key] = self._make(EntityPath(entity.path, key[1]), entity)

    def _end(self, key: _Key) -> None:
        task = self._tasks.start(self._forwarders.pop(key).close(), f"end of forwarder {key[0]}")
        self._closing[key] = task
        task.add_done_callback(lambda _: self._ended(key))

    def _ended(self, key: _Key) -> None:
        self._closing.pop(key, None)
        self._adjust((key,))
