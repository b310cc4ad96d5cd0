"""What a client does, each operation with a future that is answered; both lanes call this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.directory import Directory, guarded
from bridge.client.core.publisher import Publisher
from bridge.client.core.remote import Remote
from bridge.client.core.room import Room
from bridge.client.core.sending import batch_body, new_identity, send_entity
from bridge.client.core.wire import Answer, Refused, Unroutable, Wire, fail, succeed
from bridge.client.exceptions import (
    MessageLockLostError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    ServiceBusServerBusyError,
    of_condition,
)
from bridge.machine.settled import SettledMemory
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.description import Described
from bridge.wire import envelope, headers
from bridge.wire.basic import Table, text
from bridge.wire.envelope import Operation
from bridge.wire.reply import Refused as RefusedReply
from bridge.wire.reply import decode_reply

REFRESH_S = 15.0
"""A queue that is received from has its definition read again, which also shows that it is used."""

_KIND: Table = {headers.KIND: text(envelope.KIND)}


class Namespace:
    """The entities of a virtual host, as one client uses them.

    Args:
        sending: the connection that publishes; RabbitMQ may block it.
        receiving: the connection that receives and settles.
    """

    def __init__(self, sending: Wire, receiving: Wire) -> None:
        self._receiving = receiving
        self._publisher = Publisher(sending)
        self._directory = Directory(sending, self._publisher)
        self._remote = Remote(self._publisher, self._directory)
        self._settled = SettledMemory()
        self._rooms: dict[tuple[str, SubQueue], Room] = {}
        self._is_closed = False

    def send(self, path: str, batch: Sequence[bytes], answer: Answer) -> None:
        """Store all messages or none."""

        def then(described: Described) -> None:
            body = batch_body(Operation.SEND, described, batch)
            if not batch:
                succeed(answer)
                return
            front = names.front(described.entity.path)
            confirmed = partial(_confirmed, answer, path)
            self._publisher.publish(front, "", envelope.SILENT_PROPERTIES, body, confirmed)

        self._directory.known(path, answer, then)

    def schedule(self, path: str, batch: Sequence[bytes], due_ms: int, answer: Answer) -> None:
        """Store messages for later; the answer is their sequence numbers."""

        def then(described: Described) -> None:
            body = batch_body(Operation.SCHEDULE, described, batch, due_ms)
            if batch:
                self._ask_sequencer(described, body, path, answer)
            else:
                succeed(answer, [])

        self._directory.known(path, answer, then)

    def cancel(self, path: str, numbers: Sequence[int], answer: Answer) -> None:
        """Remove scheduled messages, all of them or none."""

        def then(described: Described) -> None:
            send_entity(described)
            if numbers:
                body = envelope.encode_cancel(new_identity(), numbers)
                self._ask_sequencer(described, body, path, answer)
            else:
                succeed(answer, [])

        self._directory.known(path, answer, then)

    def message_bytes_max(self, path: str, answer: Answer) -> None:
        """Answer with the largest message that an entity takes."""

        def then(described: Described) -> None:
            send_entity(described)
            succeed(answer, described.message_bytes_max)

        self._directory.known(path, answer, then)

    def check(self, path: str, answer: Answer) -> None:
        """Answer when an entity is there."""
        self._directory.known(path, answer, lambda described: succeed(answer))

    def pull(
        self,
        path: str,
        sub_queue: SubQueue,
        count: int,
        wait_s: float | None,
        mode: ServiceBusReceiveMode,
        answer: Answer,
        begun: Callable[[Callable[[], None]], None],
    ) -> None:
        """Receive up to so many messages; the answer is a list of `Received`.

        Args:
            begun: given what ends the wait early.
        """

        def then(described: Described) -> None:
            room = self._room(described, sub_queue)
            begun(partial(room.stop, room.pull(count, wait_s, mode, answer)))

        self._directory.known(path, answer, then)

    def settle(
        self,
        path: str,
        sub_queue: SubQueue,
        token: UUID,
        how: str,
        reason: str | None,
        description: str | None,
        answer: Answer,
    ) -> None:
        """End a lock.

        Args:
            how: complete, abandon, release, dead-letter (with reason and description), defer.
        """
        entity = EntityPath(path, sub_queue)
        if self._remote.holds(token):
            given = {"reason": reason, "description": description}
            details = {name: text(value) for name, value in given.items() if value is not None}
            self._remote.settle(entity, token, how, details, answer)
            return
        room = self._held(path, sub_queue)
        match how:
            case "complete":
                room.complete(token, answer)
            case "abandon":
                room.abandon(token, answer)
            case "dead-letter":
                room.dead_letter(token, reason, description, answer)
            case "release":
                room.release(token, answer)
            case "defer":
                defer = partial(room.defer, token, answer)
                self._remote.prepare(EntityPath(path), answer, defer)
            case _:
                raise AssertionError(how)

    def renew(self, path: str, sub_queue: SubQueue, token: UUID, answer: Answer) -> None:
        """Give a lock its full duration from now; the answer is its end (UTC ms)."""
        if self._remote.holds(token):
            self._remote.renew(EntityPath(path, sub_queue), token, answer)
        else:
            self._held(path, sub_queue).renew(token, answer)

    def peek(self, path: str, sub_queue: SubQueue, start: int, count: int, answer: Answer) -> None:
        """Answer with messages from a sequence number on, `count` at most, locking none."""
        self._remote.peek(EntityPath(path, sub_queue), start, count, answer)

    def receive_deferred(
        self,
        path: str,
        sub_queue: SubQueue,
        numbers: Sequence[int],
        mode: ServiceBusReceiveMode,
        answer: Answer,
    ) -> None:
        """Answer with the deferred messages of these sequence numbers."""
        is_locking = mode is ServiceBusReceiveMode.PEEK_LOCK
        entity = EntityPath(path, sub_queue)
        self._remote.receive_deferred(entity, numbers, is_locking, answer)

    def close(self) -> None:
        """End all that is held and waited for; what is locked goes back to its queue."""
        self._is_closed = True
        for room in self._rooms.values():
            room.close()
        self._rooms.clear()

    def _held(self, path: str, sub_queue: SubQueue) -> Room:
        room = self._rooms.get((path.lower(), sub_queue))
        if room is None:
            raise MessageLockLostError("This client holds no lock in this queue.")
        return room

    def _room(self, described: Described, sub_queue: SubQueue) -> Room:
        entity = described.entity
        if isinstance(entity, model.Topic):
            raise ServiceBusError(f"'{entity.path}' is a topic: receive from its subscriptions.")
        if not entity.status.allows_receives:
            raise MessagingEntityDisabledError(
                f"Messaging entity '{entity.path}' is currently disabled."
            )
        if entity.requires_session and sub_queue is SubQueue.NONE:
            raise ServiceBusError(
                f"'{entity.path}' requires sessions, which bridge.client does not receive; use the "
                "Azure SDK through the gateway."
            )
        key = entity.path.lower(), sub_queue
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = Room(
                described,
                sub_queue,
                wire=self._receiving,
                publisher=self._publisher,
                settled=self._settled,
            )
            self._receiving.later(REFRESH_S, partial(self._refresh, room))
        return room

    def _refresh(self, room: Room) -> None:
        """Read the definition of a queue that is in use again, now and then."""
        if self._is_closed:
            return
        if room.is_in_use:
            refreshed = _Refreshed(room)
            guarded(refreshed, self._directory.known, room.path, refreshed, room.update)
        self._receiving.later(REFRESH_S, partial(self._refresh, room))

    def _ask_sequencer(self, described: Described, body: bytes, path: str, answer: Answer) -> None:
        def answered(reply: bytes | Exception) -> None:
            if isinstance(reply, Exception):
                _confirmed(answer, path, reply)
                return
            found = decode_reply(reply)
            if isinstance(found, RefusedReply):
                fail(answer, of_condition(found.condition, found.description))
            else:
                succeed(answer, list(found.numbers))

        front = names.front(described.entity.path)
        self._publisher.ask(front, "", _KIND, body, answered, is_kept=True)


class _Refreshed:
    """The future of a definition that is read again: who waits is told that an entity is gone."""

    def __init__(self, room: Room) -> None:
        self._room = room

    def done(self) -> bool:
        """Whether it has a result: it never has."""
        return False

    def set_result(self, result: object) -> None:
        """Nothing is to be done."""

    def set_exception(self, error: BaseException) -> None:
        """Tell those who wait, if no waiting helps."""
        if isinstance(error, MessagingEntityNotFoundError):
            self._room.refuse(error)


def _confirmed(answer: Answer, path: str, error: Exception | None) -> None:
    if error is None:
        succeed(answer)
    elif isinstance(error, Unroutable):
        fail(answer, MessagingEntityNotFoundError(f"The messaging entity '{path}' is not there."))
    elif isinstance(error, Refused):
        fail(answer, ServiceBusServerBusyError(f"RabbitMQ did not take the message: {error}"))
    else:
        fail(answer, error)
