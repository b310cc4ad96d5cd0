"""All operations of a client, each answered by a future; both lanes call this module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.answers import CallbackAnswer
from bridge.client.core.directory import KnownDefinitions, guarded
from bridge.client.core.entity_receiver import EntityReceiver
from bridge.client.core.envelopes import batch_body, new_identity, send_entity
from bridge.client.core.peeking import Peeking
from bridge.client.core.publisher import Publisher
from bridge.client.core.pull import Begun
from bridge.client.core.remote import Remote, details_of
from bridge.client.core.sessions import SessionOperations
from bridge.client.core.settlements import ClientSettlements
from bridge.client.core.wire import CallerFuture, RefusedPublish, Unroutable, Wire, fail, succeed
from bridge.client.exceptions import (
    MessageLockLostError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    ServiceBusServerBusyError,
    of_condition,
    of_model,
)
from bridge.machine.queue.settled import SettledMemory
from bridge.message.received import Received
from bridge.model import entity as model
from bridge.model.availability import refusal_of_receives
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.description import DescribedEntity
from bridge.wire import envelope
from bridge.wire.administration import Request
from bridge.wire.envelope import Operation
from bridge.wire.reply import Refusal as RefusedReply
from bridge.wire.reply import decode_reply

LEAVE_S = 3.0
"""The longest wait of a client that closes until RabbitMQ has taken its settlements."""

REFRESH_S = 15.0
"""Interval at which a used queue's definition is read again; the bridge counts that as a use."""

PLAIN_ON_SESSION_ENTITY = (
    "It is not possible for an entity that requires sessions to create a non-sessionful message "
    "receiver."
)
RECEIVER_OF_FORWARDED = (
    "Cannot create a message receiver on an entity with auto-forwarding enabled."
)


class ClientNamespace:
    """The entities of a virtual host, for one client.

    Args:
        sending: the connection that publishes; RabbitMQ may block it.
        receiving: the connection that receives and settles.

    Attributes:
        sessions: the sessions that the client holds.
    """

    def __init__(self, sending: Wire, receiving: Wire) -> None:
        self._receiving = receiving
        self._publisher = Publisher(sending)
        self._directory = KnownDefinitions(sending, self._publisher, self._held_of)
        self._remote = Remote(sending, self._publisher, self._directory)
        self.sessions = SessionOperations(sending, self._publisher, self._directory, self._remote)
        self._settled = SettledMemory()
        self._settlements = ClientSettlements(sending, self._publisher)
        self._peeking = Peeking(self._directory, self._remote, self._settlements)
        self._receivers: dict[tuple[str, SubQueue], EntityReceiver] = {}
        self._is_closed = False

    def send(self, path: str, batch: Sequence[bytes], answer: CallerFuture) -> None:
        """Store all messages or none."""

        def then(described: DescribedEntity) -> None:
            body = batch_body(Operation.SEND, described, batch)
            if not batch:
                succeed(answer)
                return
            front = names.front(described.entity.path)
            confirmed = partial(self._confirmed, answer, path)
            self._publisher.publish(front, "", envelope.SILENT_PROPERTIES, body, confirmed)

        self._directory.known(path, answer, then)

    def schedule(
        self, path: str, batch: Sequence[bytes], due_ms: int, answer: CallerFuture
    ) -> None:
        """Store messages for later; answer with their sequence numbers."""

        def then(described: DescribedEntity) -> None:
            body = batch_body(Operation.SCHEDULE, described, batch, due_ms)
            if batch:
                self._ask_sequencer(described, body, path, answer)
            else:
                succeed(answer, [])

        self._directory.known(path, answer, then)

    def cancel(self, path: str, numbers: Sequence[int], answer: CallerFuture) -> None:
        """Remove scheduled messages, all of them or none."""

        def then(described: DescribedEntity) -> None:
            send_entity(described)
            if numbers:
                body = envelope.encode_cancel(new_identity(), numbers)
                self._ask_sequencer(described, body, path, answer)
            else:
                succeed(answer, [])

        self._directory.known(path, answer, then)

    def message_bytes_max(self, path: str, answer: CallerFuture) -> None:
        """Answer with the entity's maximum message size."""

        def then(described: DescribedEntity) -> None:
            send_entity(described)
            succeed(answer, described.message_bytes_max)

        self._directory.known(path, answer, then)

    def check(self, path: str, answer: CallerFuture) -> None:
        """Answer when the entity is found."""
        self._directory.known(path, answer, lambda described: succeed(answer))

    def pull(
        self,
        path: EntityPath,
        count: int,
        wait_s: float | None,
        mode: ServiceBusReceiveMode,
        answer: CallerFuture,
        begun: Callable[[Begun], None],
    ) -> None:
        """Receive up to `count` messages; answer with a list of `Received`.

        Args:
            begun: gets what ends the wait, and what hears whether the caller has the messages.
        """

        def then(described: DescribedEntity) -> None:
            receiver = self._receiver_of(described, path.sub_queue)
            begun(receiver.pull(count, wait_s, mode, answer))

        self._directory.known(path.entity, answer, then)

    def settle(
        self,
        path: EntityPath,
        locked: Received,
        how: str,
        reason: str | None,
        description: str | None,
        answer: CallerFuture,
    ) -> None:
        """End a lock; a bridge holds the locks of deferred messages.

        Args:
            how: complete, abandon, dead-letter (with reason and description), defer.
        """
        token = _token(locked)
        if locked.is_deferred:
            self._remote.settle(path, token, how, details_of(reason, description), answer)
            return
        receiver = self._held(path)
        match how:
            case "complete":
                receiver.complete(token, answer)
            case "abandon":
                receiver.abandon(token, answer)
            case "dead-letter":
                receiver.dead_letter(token, reason, description, answer)
            case "defer":
                defer = partial(receiver.defer, token, answer)
                self._remote.prepare(EntityPath(path.entity), answer, defer)
            case _:
                raise AssertionError(how)

    def renew(self, path: EntityPath, locked: Received, answer: CallerFuture) -> None:
        """Give a lock its full duration from now; answer with its end (UTC ms)."""
        token = _token(locked)
        if locked.is_deferred:
            self._remote.renew(path, token, answer)
        else:
            self._held(path).renew(token, answer)

    def peek(self, path: EntityPath, start: int, count: int, answer: CallerFuture) -> None:
        """Answer with messages from a sequence number on, `count` at most, locking none."""
        receivers = [each for (key, _), each in self._receivers.items() if key == path.key]
        self._peeking.peek(path, start, count, receivers, answer)

    def receive_deferred(
        self, path: EntityPath, numbers: Sequence[int], answer: CallerFuture
    ) -> None:
        """Answer with the deferred messages of these sequence numbers, locked."""
        self._remote.receive_deferred(path, numbers, answer)

    def end_locks(
        self, path: EntityPath, found: Sequence[Received], how: str, answer: CallerFuture
    ) -> None:
        """Complete or release deferred messages; the answer does not wait for the bridges."""
        self._remote.end_locks(path, found, how)
        succeed(answer)

    def administer(self, request: Request, answer: CallerFuture) -> None:
        """Answer with the `Response` to a request to the administration API."""
        self._remote.administer(request, answer)

    def lose(self) -> None:
        """Give up all state of the connections: RabbitMQ delivers held messages again."""
        self._settlements.lose()
        for receiver in self._receivers.values():
            receiver.lose()

    def leave(self, left: Callable[[], None]) -> None:
        """Receive no more; call `left` when `close` may end the channels, after `LEAVE_S` at last.

        RabbitMQ forgets settlements of a channel that ends before it has taken them.
        """
        self._is_closed = True
        missing = {*self._receivers.values()}

        def end() -> None:
            missing.clear()
            timer.cancel()
            left()

        def one_left(receiver: EntityReceiver) -> None:
            if receiver in missing:
                missing.discard(receiver)
                if not missing:
                    end()

        timer = self._receiving.later(LEAVE_S, end)
        for each in [*missing]:
            each.leave(partial(one_left, each))
        if not self._receivers:
            end()

    def close(self) -> None:
        """End all locks and waits; locked messages go back to their queues."""
        self._is_closed = True
        self.sessions.close_all()
        self._remote.close()
        self._settlements.close()
        for receiver in self._receivers.values():
            receiver.close()
        self._receivers.clear()

    def _held_of(self, path: str) -> list[int]:
        """Return how many active messages and dead letters of an entity are held here."""
        receivers = [
            self._receivers.get((path.lower(), each))
            for each in (SubQueue.NONE, SubQueue.DEAD_LETTER)
        ]
        return [0 if receiver is None else receiver.held_count for receiver in receivers]

    def _held(self, path: EntityPath) -> EntityReceiver:
        receiver = self._receivers.get((path.key, path.sub_queue))
        if receiver is None:
            raise MessageLockLostError("This client holds no lock in this queue.")
        return receiver

    def _receiver_of(self, described: DescribedEntity, sub_queue: SubQueue) -> EntityReceiver:
        if self._is_closed:
            raise ValueError("The ServiceBusClient is closed.")
        entity = described.entity
        _check_receivable(entity, sub_queue)
        key = entity.path.lower(), sub_queue
        receiver = self._receivers.get(key)
        if receiver is None:
            receiver = self._receivers[key] = EntityReceiver(
                described,
                sub_queue,
                wire=self._receiving,
                publisher=self._publisher,
                settled=self._settled,
                settlements=self._settlements,
            )
            self._receiving.later(REFRESH_S, partial(self._refresh, receiver))
        receiver.update(described)
        return receiver

    def _refresh(self, receiver: EntityReceiver) -> None:
        """Read the definition of a queue in use at intervals."""
        if self._is_closed:
            return
        if receiver.is_in_use:
            told = CallbackAnswer(error=partial(_not_learnt, receiver))
            learn = partial(_learn, receiver)
            guarded(told, self._directory.known, receiver.messages.path.entity, told, learn)
        self._receiving.later(REFRESH_S, partial(self._refresh, receiver))

    def _ask_sequencer(
        self, described: DescribedEntity, body: bytes, path: str, answer: CallerFuture
    ) -> None:
        def answered(reply: bytes | Exception) -> None:
            if isinstance(reply, Exception):
                self._confirmed(answer, path, reply)
                return
            found = decode_reply(reply)
            if isinstance(found, RefusedReply):
                fail(answer, of_condition(found.condition, found.description))
            else:
                succeed(answer, list(found.numbers))

        front = names.front(described.entity.path)
        self._publisher.ask(front, "", envelope.HEADERS, body, answered, is_kept=True)

    def _confirmed(self, answer: CallerFuture, path: str, error: Exception | None) -> None:
        if error is None:
            succeed(answer)
        elif isinstance(error, Unroutable):
            self._directory.forget(path)
            not_there = f"The messaging entity '{path}' is not there."
            fail(answer, MessagingEntityNotFoundError(not_there))
        elif isinstance(error, RefusedPublish):
            busy = f"RabbitMQ did not take the message: {error}"
            fail(answer, ServiceBusServerBusyError(busy))
        else:
            fail(answer, error)


def _token(locked: Received) -> UUID:
    assert locked.lock_token is not None
    return locked.lock_token


def _check_receivable(entity: model.Entity, sub_queue: SubQueue) -> None:
    """Refuse an entity that no receiver may receive from now."""
    if isinstance(entity, model.Topic):
        raise MessagingEntityNotFoundError(
            f"'{entity.path}' is a topic: receive from its subscriptions."
        )
    if (refused := refusal_of_receives(entity)) is not None:
        raise of_model(refused)
    if entity.requires_session and sub_queue is SubQueue.NONE:
        raise ServiceBusError(PLAIN_ON_SESSION_ENTITY)
    if target_of(entity, sub_queue):
        raise ServiceBusError(RECEIVER_OF_FORWARDED)


def _learn(receiver: EntityReceiver, described: DescribedEntity) -> None:
    """Give a receiver its new definition; fail its waiting calls if receiving is refused now."""
    entity = described.entity
    if not isinstance(entity, model.Topic):
        receiver.update(described)
    try:
        _check_receivable(entity, receiver.messages.path.sub_queue)
    except ServiceBusError as error:
        receiver.refuse(error)


def _not_learnt(receiver: EntityReceiver, error: BaseException) -> None:
    """Fail the receiver's waiting calls if no entity exists."""
    if isinstance(error, MessagingEntityNotFoundError):
        receiver.refuse(error)
