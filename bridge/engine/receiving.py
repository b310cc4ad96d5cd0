"""Receiving: the receivers of this process, and the queues of RabbitMQ that they receive from."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from bridge.broker.channel import Channel
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.api import Received, ReceiveMode, Undeliverable
from bridge.engine.counters import Counters
from bridge.engine.departure import Departure
from bridge.engine.holding import Holding
from bridge.engine.intake import Intake
from bridge.engine.locktable import Locked, LockTable
from bridge.engine.news import KEPT, WANTED
from bridge.engine.receiver import QueueReceiver
from bridge.engine.source import Source
from bridge.engine.turn import Turn
from bridge.machine.deduplicator import Left
from bridge.machine.settled import SettledMemory
from bridge.model import entity as model
from bridge.model.errors import NotAllowed
from bridge.model.name import EntityPath, SubQueue
from bridge.topology.capabilities import Capabilities

OFFER_S = 2.0
"""How often this bridge tells others what it keeps."""

CLOSE_S = 1.0
"""How long a receiver may take to give up what is on its way."""


class Receiving:
    """Brings receivers and sources together; before anything is received, `start` it.

    Args:
        tell: tells the other bridges some news of an entity.
        on_lost: called when a channel, and all that was locked on it, is lost.
    """

    def __init__(
        self,
        *,
        intake: Intake,
        turn: Turn,
        departure: Departure,
        locks: LockTable,
        counters: Counters,
        tell: Callable[[str, EntityPath], None],
        on_lost: Callable[[Channel], None],
    ) -> None:
        self._intake = intake
        self._turn = turn
        self._departure = departure
        self._locks = locks
        self._counters = counters
        self._tell = tell
        self._on_lost = on_lost
        self._can_return = False
        self._is_clustered = False
        self._settled = SettledMemory()
        self._sources: dict[tuple[str, SubQueue], Source] = {}
        self._receivers: dict[int, QueueReceiver] = {}
        self._last_receiver = 0

    def __repr__(self) -> str:
        return f"Receiving({len(self._receivers)} receivers, {len(self._sources)} sources)"

    @property
    def kept(self) -> int:
        """How many released messages wait here for the next receiver."""
        return sum(source.kept for source in self._sources.values())

    def held(self, path: EntityPath) -> int:
        """Return how many messages of a queue are here: locked, kept, or about to leave."""
        source = self._sources.get((path.key, path.sub_queue))
        return 0 if source is None else source.held

    def start(self, capabilities: Capabilities, *, is_clustered: bool) -> None:
        """Learn what RabbitMQ is like."""
        self._can_return = not capabilities.nack_counts
        self._is_clustered = is_clustered

    def open(
        self,
        path: EntityPath,
        queue: model.ReceiveEntity,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
    ) -> QueueReceiver:
        """Return a receiver without credit."""
        if queue.requires_session and path.sub_queue is SubQueue.NONE:
            raise NotAllowed(texts.PLAIN_ON_SESSION_ENTITY)
        self._last_receiver += 1
        receiver = QueueReceiver(
            self._last_receiver, self._source(path, queue), mode, deliver, self._forget
        )
        self._receivers[receiver.number] = receiver
        return receiver

    def follow(self, namespace: model.Namespace) -> None:
        """The definitions have changed."""
        there = {each.path.lower(): each for each in model.receive_entities(namespace)}
        for source in self._sources.values():
            source.update(there.get(source.path.key, source.queue))

    def on_told(self, kind: str, path: EntityPath) -> None:
        """Another bridge keeps messages of an entity, or waits for them."""
        source = self._sources.get((path.key, path.sub_queue))
        if source is not None and kind == KEPT and source.asked:
            self._tell(WANTED, path)
        elif source is not None and kind == WANTED and source.kept and not source.asked:
            source.give_up_kept()

    async def offer_kept(self) -> None:
        """Tell others what is kept here and nobody asks for, and look for them, until cancelled."""
        while True:
            await asyncio.sleep(OFFER_S)
            for source in list(self._sources.values()):
                if source.kept and not source.asked:
                    self._tell(KEPT, source.path)
                await source.lookout.look()

    async def end(self) -> None:
        """Receive nothing more."""
        for receiver in list(self._receivers.values()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await receiver.close()

    def give_back(self, locked: Iterable[Locked]) -> None:
        """Return messages to their queues in order and uncounted, where RabbitMQ can do that.

        Before 4.3 it counts whatever is returned, also by the end of a channel.
        """
        if not self._can_return:
            return
        for owner, holding in sorted(locked, key=lambda each: each[1].number):
            if not owner.is_deferred and owner.holds(holding):
                owner.release(holding)

    async def close(self) -> None:
        """Let go: what is locked or kept goes back to its queue."""
        for source in self._sources.values():
            with contextlib.suppress(BrokerError):
                await source.close()

    def _source(self, path: EntityPath, queue: model.ReceiveEntity) -> Source:
        key = (path.key, path.sub_queue)
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = Source(
                path,
                queue,
                intake=self._intake,
                turn=self._turn,
                departure=self._departure,
                settled=self._settled,
                can_return=self._can_return,
                is_clustered=self._is_clustered,
                deliver=self._deliver,
                on_lost=self._on_lost,
            )
        return source

    def _deliver(self, source: Source, number: int, holding: Holding) -> None:
        receiver = self._receivers.get(number)
        if receiver is None:
            source.release(holding)
            return
        self._counters.delivered += 1
        if receiver.mode is ReceiveMode.RECEIVE_AND_DELETE:
            try:
                receiver.deliver(holding.received())
            except Undeliverable as error:
                source.refuse(holding, error)
                return
            source.ack(holding, "engine.receive_and_delete.acked")
            source.left(holding, Left.SETTLED)
            self._counters.received_and_deleted += 1
            return
        token, until_ms = self._locks.acquire(source, holding, source.queue.lock_duration_ms)
        try:
            receiver.deliver(holding.received(lock_token=token, locked_until_ms=until_ms))
        except Undeliverable as error:
            # No client can have it; it would come again and again.
            self._locks.release(token)
            source.refuse(holding, error)

    def _forget(self, number: int) -> None:
        self._receivers.pop(number, None)
