"""The forwarders of this process: one for each forwarding entity that this process leads.

The leader of a queue or topic forwards its messages, too: so a source has one forwarder at a time,
and the order is kept. A leader that ends first forwards the messages that it holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bridge.background.tasks import Tasks
from bridge.engine.forwarding.forwarder import Forwarder
from bridge.model import entity as model
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology.definitions import incarnation_of

MakeForwarder = Callable[[EntityPath, model.ReceiveEntity], Forwarder]
_Key = tuple[str, SubQueue]

log = logging.getLogger(__name__)


class Forwarding:
    """Starts and ends forwarders, as leadership and definitions change.

    Args:
        make: starts and returns a forwarder.
    """

    def __init__(self, make: MakeForwarder) -> None:
        self._make = make
        self._sources: dict[_Key, model.ReceiveEntity] = {}
        self._led: set[str] = set()
        self._forwarders: dict[_Key, Forwarder] = {}
        self._closing: dict[_Key, asyncio.Task[None]] = {}
        self._tasks = Tasks()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"Forwarding({len(self._forwarders)} forwarders)"

    def lead(self, front: str) -> None:
        """Forward from a queue or topic: this process is its leader from now on."""
        self._led.add(front.lower())
        self._adjust()

    async def leave(self, front: str) -> None:
        """Stop forwarding from a queue or topic; wait until its forwarders have ended."""
        self._led.discard(front.lower())
        self._adjust()
        ending = [
            task
            for (path, _), task in self._closing.items()
            if path == front.lower() or path.startswith(f"{front.lower()}/subscriptions/")
        ]
        if ending:
            await asyncio.wait(ending)

    def follow(self, namespace: model.Namespace) -> None:
        """Take over changed definitions: start, change and end forwarders."""
        self._sources = {
            (entity.path.lower(), sub_queue): entity
            for entity in model.receive_entities(namespace)
            for sub_queue in (SubQueue.NONE, SubQueue.DEAD_LETTER)
            if target_of(entity, sub_queue) and entity.status.allows_receives
        }
        for key, forwarder in list(self._forwarders.items()):
            entity = self._sources.get(key)
            if entity is None or incarnation_of(entity) != incarnation_of(forwarder.entity):
                self._end(key)
            else:
                forwarder.entity = entity
        self._adjust()

    async def close(self) -> None:
        """End all forwarders."""
        self._is_closed = True
        self._adjust()
        await asyncio.gather(*self._closing.values(), return_exceptions=True)

    def _adjust(self) -> None:
        """Start the missing forwarders, and end those that are not wanted any more."""
        wanted = {
            key: entity
            for key, entity in self._sources.items()
            if entity.front.lower() in self._led and not self._is_closed
        }
        for key in self._forwarders.keys() - wanted.keys():
            self._end(key)
        for key, entity in wanted.items():
            if key not in self._forwarders and key not in self._closing:
                log.info("forward.begins entity=%s/%s", entity.path, key[1].value)
                self._forwarders[key] = self._make(EntityPath(entity.path, key[1]), entity)

    def _end(self, key: _Key) -> None:
        task = self._tasks.start(self._forwarders.pop(key).close(), f"end of forwarder {key[0]}")
        self._closing[key] = task
        task.add_done_callback(lambda _: self._ended(key))

    def _ended(self, key: _Key) -> None:
        self._closing.pop(key, None)
        self._adjust()
