"""Receiving: the receivers of this process, and the queues of RabbitMQ that they receive from."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from bridge.background.tasks import Tasks
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.api import Received, ReceiveMode, Undeliverable
from bridge.engine.receiving.queue_reader import QueueReader
from bridge.engine.receiving.receiver import QueueReceiver, note_failed
from bridge.engine.receiving.turn import Turn
from bridge.engine.services import Services
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.locktable import Locked
from bridge.machine.queue.settled import SettledMemory
from bridge.message.channels import Way, way_of
from bridge.model import entity as model
from bridge.model.errors import NotAllowed
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology.capabilities import Capabilities
from bridge.topology.entity_table import Changes

CLOSE_S = 1.0
"""The longest wait for the receivers' close."""

Take = Callable[[HeldMessage], None]
"""Takes a receiver's message, which is held unacked."""


class Receiving:
    """The receivers of this process, with one reader for each queue; `start` comes first.

    Args:
        on_used: called with the path of each receiver that is opened or closed.
    """

    def __init__(
        self, services: Services, turn: Turn, on_used: Callable[[EntityPath], None]
    ) -> None:
        self._services = services
        self._turn = turn
        self._locks = services.locks
        self._counters = services.counters
        self._on_used = on_used
        self._way: Way
        self._settled = SettledMemory()
        self._readers: dict[tuple[str, SubQueue], QueueReader] = {}
        self._takes: dict[int, Take] = {}
        self._receivers: set[QueueReceiver] = set()
        self._last_receiver = 0
        self._ending = Tasks()

    def __repr__(self) -> str:
        return f"Receiving({len(self._receivers)} receivers, {len(self._readers)} queues)"

    @property
    def buffered(self) -> int:
        """The count of messages that wait in this process for the next receiver."""
        return sum(reader.buffered for reader in self._readers.values())

    @property
    def open_paths(self) -> set[str]:
        """The entities that have receivers in this process (lower case)."""
        return {each.reader.path.key for each in self._receivers}

    def held(self, path: EntityPath) -> int:
        """Return the count of a queue's held messages: locked, buffered, or about to leave."""
        reader = self._readers.get((path.key, path.sub_queue))
        return 0 if reader is None else reader.held

    def held_numbers(self, path: EntityPath) -> list[int]:
        """Return the numbers of a queue's held messages, of those that have one."""
        reader = self._readers.get((path.key, path.sub_queue))
        return [] if reader is None else list(reader.machine.copies.held())

    def waiting(self, path: EntityPath) -> int:
        """Return the count of a queue's messages that wait here for a receiver or their return."""
        reader = self._readers.get((path.key, path.sub_queue))
        return 0 if reader is None else reader.buffered

    def start(self, capabilities: Capabilities, *, is_clustered: bool) -> None:
        """Choose the strategy and channel limits for this RabbitMQ."""
        self._way = way_of(capabilities, is_clustered=is_clustered)

    def open(
        self,
        path: EntityPath,
        queue: model.ReceiveEntity,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
    ) -> QueueReceiver:
        """Return a new receiver, without credit.

        Raises:
            NotAllowed: the entity requires sessions, or forwards its messages.
        """
        if queue.requires_session and path.sub_queue is SubQueue.NONE:
            raise NotAllowed(texts.PLAIN_ON_SESSION_ENTITY)
        if target_of(queue, path.sub_queue):
            raise NotAllowed(texts.RECEIVER_OF_FORWARDED)

        def take(holding: HeldMessage) -> None:
            self._give(receiver, mode, deliver, holding)

        receiver = self.open_uncounted(path, queue, take)
        self._receivers.add(receiver)
        self._on_used(path)
        return receiver

    def open_uncounted(
        self, path: EntityPath, queue: model.ReceiveEntity, take: Take
    ) -> QueueReceiver:
        """Return a new receiver, without credit, that does not count as use of its entity."""
        self._last_receiver += 1
        self._takes[self._last_receiver] = take
        reader = self._reader(path, queue)
        return QueueReceiver(self._last_receiver, reader, self._on_taken, self._forget)

    def follow(self, changes: Changes) -> None:
        """Take over changed definitions; close the readers of entities that are no more."""
        for path, queue in changes.receivable:
            for sub_queue in SubQueue:
                reader = self._readers.get((path, sub_queue))
                if reader is not None:
                    reader.update(queue)
        for path in changes.gone:
            for sub_queue in SubQueue:
                # An open receiver keeps this reader; receivers of a later entity get a new one.
                reader = self._readers.pop((path, sub_queue), None)
                if reader is not None:
                    self._locks.lose_owner(reader)
                    self._ending.start(_closed(reader))

    async def end(self, locked: Iterable[Locked]) -> None:
        """Close all receivers within `CLOSE_S`, and return the messages of ended locks.

        All are returned in one turn, in order with those that were fetched ahead, and uncounted
        where RabbitMQ can do that.
        """
        closing = [asyncio.ensure_future(each.close()) for each in list(self._receivers)]
        for owner, holding in locked:
            if isinstance(owner, QueueReader) and owner.holds(holding):
                owner.put_down(holding)
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_S)

    async def close(self) -> None:
        """Close all readers: RabbitMQ takes back locked and buffered messages."""
        for reader in self._readers.values():
            await _closed(reader)
        await asyncio.gather(*self._ending)

    def _reader(self, path: EntityPath, queue: model.ReceiveEntity) -> QueueReader:
        key = (path.key, path.sub_queue)
        reader = self._readers.get(key)
        if reader is None:
            make_credit, channels = self._way
            reader = self._readers[key] = QueueReader(
                path,
                queue,
                services=self._services,
                turn=self._turn,
                settled=self._settled,
                credit=make_credit(),
                channels=channels,
                deliver=self._deliver,
            )
        return reader

    def _deliver(self, reader: QueueReader, number: int, holding: HeldMessage) -> None:
        take = self._takes.get(number)
        if take is None:
            reader.release(holding)
        else:
            take(holding)

    def _give(
        self,
        receiver: QueueReceiver,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
        holding: HeldMessage,
    ) -> None:
        """Give a client a message: locked, or to be settled when it is in the client's output.

        A receiver that fails ends, and the message is available again, uncounted. Others share its
        channel: their messages stay with them.
        """
        reader = receiver.reader
        self._counters.delivered += 1
        if mode is ReceiveMode.RECEIVE_AND_DELETE:
            receiver.sent(holding)
            try:
                deliver(holding.received())
            except Undeliverable as error:
                receiver.take_back()
                reader.refuse(holding, error)
            except Exception as error:
                self._end_failed(receiver, error)
            return
        token, until_ms = self._locks.acquire(reader, holding, reader.queue.lock_duration_ms)
        try:
            deliver(holding.received(lock_token=token, locked_until_ms=until_ms))
        except Undeliverable as error:
            # No client can have the message; given back, it would come again and again.
            self._locks.release(token)
            reader.refuse(holding, error)
        except Exception as error:
            self._end_failed(receiver, error)
            if self._locks.release(token) is not None:
                reader.release(holding)

    def _end_failed(self, receiver: QueueReceiver, error: Exception) -> None:
        note_failed(receiver.reader.path, error)
        receiver.close()

    def _on_taken(self, reader: QueueReader, holding: HeldMessage) -> None:
        reader.delete(holding)
        self._counters.received_and_deleted += 1

    def _forget(self, receiver: QueueReceiver) -> None:
        self._takes.pop(receiver.number, None)
        if receiver in self._receivers:
            self._receivers.remove(receiver)
            self._on_used(receiver.reader.path)


async def _closed(reader: QueueReader) -> None:
    with contextlib.suppress(BrokerError):
        await reader.close()
