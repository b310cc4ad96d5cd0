"""The owner of each shard of all session entities: in this process, or the name of a bridge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from bridge.background.tasks import Tasks
from bridge.engine.ownership import asking
from bridge.engine.peers import Peers
from bridge.engine.services import Services
from bridge.engine.sessions.location import Local, Location, RemoteOwner
from bridge.engine.sessions.messages import SessionMessages, Tell
from bridge.engine.sessions.owner import SessionOwner
from bridge.engine.sessions.placement import Bridges, Placement
from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.machine.queue.settled import SettledMemory, SettledNumbers
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology import names, parts
from bridge.topology.capabilities import Capabilities
from bridge.topology.definitions import incarnation_of
from bridge.topology.entity_table import Changes
from bridge.topology.shards import count_of
from bridge.wire.sessions import ASK_HEADERS

WHAT = "messages of sessions"

BODIES_BYTES_MAX = 256 << 20
"""The memory budget of session messages' bodies; others are fetched again when needed."""

log = logging.getLogger(__name__)

Shard = tuple[str, int]
"""An entity's path (lower case) and the number of a shard."""


class Owners:
    """The owners of this process, and the known owners in other bridges.

    Args:
        capabilities: returns RabbitMQ's capabilities.
        consumes_once: returns whether no channel may consume twice.
        bridges: returns the names of all running bridges.
        tell: called with each event of a receiver.
        on_ready: called with a shard when this process has become its owner.
        on_gone: called with the name of a bridge that is found to be gone.

    Attributes:
        budget: the memory budget of all messages' bodies.
    """

    def __init__(
        self,
        services: Services,
        peers: Peers,
        *,
        capabilities: Callable[[], Capabilities],
        consumes_once: Callable[[], bool],
        bridges: Bridges,
        tell: Tell,
        on_ready: Callable[[Shard], None],
        on_gone: Callable[[bytes], None],
    ) -> None:
        self._services = services
        self._capabilities = capabilities
        self._consumes_once = consumes_once
        self._tell = tell
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._placement = Placement(peers, bridges, services.locks)
        self._settled_memory = SettledMemory()
        self._settled: dict[str, SettledNumbers] = {}
        self._here: dict[Shard, SessionOwner] = {}
        self._elsewhere: dict[Shard, bytes] = {}
        self._joining = Tasks()
        self._is_leaving = False
        self.budget = MemoryBudget(BODIES_BYTES_MAX)
        self._peers = peers

    def __repr__(self) -> str:
        return f"Owners({list(self._here.values())})"

    @property
    def all(self) -> list[SessionOwner]:
        """The shards that this process owns, or stands by for."""
        return list(self._here.values())

    def leave(self) -> None:
        """Deliver no more messages, and give no session: this process is to stop."""
        self._is_leaving = True
        for owner in self._here.values():
            owner.messages.machine.is_leaving = True

    def ready(self, shard: Shard) -> SessionOwner | None:
        """Return a shard's owner in this process, or `None` when it is not the ready owner."""
        owner = self._here.get(shard)
        return owner if owner is not None and owner.is_ready else None

    def held(self, path: str) -> int:
        """Return how many messages of an entity (lower case) this process holds."""
        return sum(
            len(owner.messages.machine) for (key, _), owner in self._here.items() if key == path
        )

    async def find(self, queue: model.ReceiveEntity, shard: int) -> Location:
        """Return the location of a shard's owner; this process stands by at the shard, too.

        Raises:
            ServerBusy, OperationTimeout: no owner answers.
        """
        key = queue.path.lower(), shard
        if count_of(queue) > 1:
            self._join(queue)
        owner = self._owner(queue, shard)
        await asking.in_time(owner.stand_by, what=WHAT)
        if owner.is_ready:
            return Local(owner)
        bridge = self._elsewhere.get(key)
        if bridge is None:
            resource = owner.ownership.resource
            reply = await asking.ask(self._services.sender, resource, ASK_HEADERS, b"", what=WHAT)
            bridge = reply.content
        if self._services.locks.is_named(bridge):
            return Local(owner)
        self._elsewhere[key] = bridge
        return RemoteOwner(bridge, EntityPath(queue.path), shard, self._peers, self._on_gone)

    def _join(self, queue: model.ReceiveEntity) -> None:
        """Stand by at all shards of an entity when this process first uses one of them.

        Also a shard without receivers needs an owner: only an owner finds expired messages,
        messages without a session id, and native consumers.
        """
        key = queue.path.lower()
        if not any(path == key for path, _ in self._here):
            for shard in range(count_of(queue)):
                self._owner(queue, shard)
            self._joining.start(self._find_all(queue))

    async def _find_all(self, queue: model.ReceiveEntity) -> None:
        asks = (self.find(queue, shard) for shard in range(count_of(queue)))
        for found in await asyncio.gather(*asks, return_exceptions=True):
            if isinstance(found, Exception):  # a receiver that needs the shard asks again
                log.info("session.unfound entity=%s error=%s", queue.path, found)

    async def stand_by(self, queue: model.ReceiveEntity, shard: int) -> None:
        """Stand by at a shard, because another bridge has asked for it.

        Raises:
            ServerBusy, OperationTimeout: RabbitMQ refuses, or does not answer.
        """
        await asking.in_time(self._owner(queue, shard).stand_by_now, what=WHAT)

    def ask_again(self, shard: Shard) -> None:
        """Forget which bridge owns a shard; the next `find` asks for it."""
        self._elsewhere.pop(shard, None)

    def forget(self, bridge: bytes) -> None:
        """Forget a bridge that is gone, as an owner and in the order of bridges."""
        self._placement.forget()
        for key in [key for key, each in self._elsewhere.items() if each == bridge]:
            del self._elsewhere[key]

    def follow(self, changes: Changes) -> set[str]:
        """Take over changed definitions; return the entities (lower case) that are no more.

        An entity with another incarnation is one that is no more, too.
        """
        gone = set()
        for path in changes.before.keys() | changes.after.keys():
            queue = changes.after.get(path)
            for shard in shards_of(changes, path):
                key = path, shard
                owner = self._here.get(key)
                if owner is None:
                    continue
                if not isinstance(queue, model.Queue | model.Subscription) or incarnation_of(
                    queue
                ) != incarnation_of(owner.messages.queue):
                    del self._here[key]
                    if (settled := self._settled.pop(path, None)) is not None:
                        settled.forget()
                    self.ask_again(key)
                    owner.drop()
                    gone.add(path)
                else:
                    owner.messages.update(queue)
        return gone

    async def end(self) -> None:
        """End all owners of this process, in order."""
        self._joining.cancel()
        ends = (owner.end() for owner in self._here.values())
        await asyncio.gather(*ends, return_exceptions=True)

    def _owner(self, queue: model.ReceiveEntity, shard: int) -> SessionOwner:
        key = queue.path.lower(), shard
        owner = self._here.get(key)
        if owner is None:
            messages = SessionMessages(
                queue,
                shard,
                budget=self.budget,
                settled=self._settled_of(queue),
                services=self._services,
                tell=self._tell,
            )
            messages.machine.is_leaving = self._is_leaving
            owner = self._here[key] = SessionOwner(
                messages,
                parts.sessions_queue(queue.path, shard),
                services=self._services,
                compacts_logs=self._capabilities().compacts_logs,
                consumes_once=self._consumes_once(),
                on_ready=partial(self._is_ready, key),
                first=partial(self._placement.offer, queue, shard),
                elsewhere=partial(self._placement.stands_by_elsewhere, queue, shard),
            )
        return owner

    def _settled_of(self, queue: model.ReceiveEntity) -> SettledNumbers:
        """Return the settled numbers of an entity's shards together; peeks read them, too."""
        key = queue.path.lower()
        settled = self._settled.get(key)
        if settled is None:
            settled = self._settled[key] = self._settled_memory.numbers()
            self._services.settlements.of(names.active_queue(key)).known = settled.numbers
        return settled

    def _is_ready(self, shard: Shard) -> None:
        self.ask_again(shard)
        self._on_ready(shard)


def shards_of(changes: Changes, path: str) -> range:
    """Return the shards that a changed entity has or had."""
    states = (changes.before.get(path), changes.after.get(path))
    return range(max(1 if each is None else count_of(each) for each in states))
