"""The engine's interface for gateways: the verbs of Service Bus, as protocols and values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol
from uuid import UUID

from bridge.engine.change_verbs import NamespaceChanges
from bridge.engine.numbered_locks import NumberedLocks
from bridge.message.envelopes import Outgoing
from bridge.message.received import Received as Received
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.topology.shards import SessionKey
from bridge.wire.basic import Table


class ReceiveMode(Enum):
    """How messages are received: locked until settled, or settled at their delivery."""

    PEEK_LOCK = "PeekLock"
    RECEIVE_AND_DELETE = "ReceiveAndDelete"


class Undeliverable(Exception):
    """A gateway cannot encode a message for any client."""


class NotTaken(Exception):
    """A receiver takes no messages any more: this one is available again, uncounted."""


Deliver = Callable[[Received], None]
"""Callback that sends a message to a client.

Raises `Undeliverable`, or another error: then the receiver ends, and the message is available
again, uncounted.
"""


@dataclass(frozen=True, slots=True)
class Complete:
    """Remove the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """Make the message available again, its delivery count raised by 1.

    Attributes:
        properties: merged into the message's application properties, as for the dispositions below.
    """

    properties: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Move the message to the dead-letter sub-queue.

    Reason and description become application properties.
    """

    reason: str | None = None
    description: str | None = None
    properties: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """Defer the message: it can be received by its sequence number only."""

    properties: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """Make the message available again, its delivery count unchanged."""


Disposition = Complete | Abandon | DeadLetter | Defer | Release


OnSent = Callable[[ServiceBusError | None], None]
"""A callback for a send's end: `None` when RabbitMQ has confirmed it, or the error."""

OnSettled = Callable[[ServiceBusError | None], None]
"""A callback for a settlement's end: `None`, or the error."""


class Receiver(Protocol):
    """One client's receiver of an entity: messages are delivered as it gives credit."""

    def add_credit(self, count: int) -> None:
        """Ask for `count` more messages."""

    async def withdraw(self) -> None:
        """Take back all credit; after that no message is delivered until new credit is given."""

    async def drain(self) -> None:
        """Deliver what is available within the credit, then take back the rest of the credit."""

    def taken(self) -> None:
        """Settle the oldest received-and-deleted message: it is in the client's output now.

        Called once for each message without a lock, in the order of their deliveries. What is not
        taken at the end of the receiver is available again, uncounted.
        """

    def close(self) -> Awaitable[None]:
        """Take back all credit for good; locks stay until they are settled or expire.

        No message is delivered from the call on; the awaitable ends when all credit is back.
        """


class SessionReceiver(Receiver, Protocol):
    """A receiver that holds one session's lock: no other receiver gets the session's messages.

    Its messages come in the order of their numbers; an abandoned message comes again next. `close`
    ends the session's lock at once: delivered and unsettled messages are available to the session's
    next receiver, their delivery counts unchanged.
    """

    @property
    def session_key(self) -> SessionKey:
        """The key of the session among its entity's sessions, whatever case its id is given in."""

    @property
    def session_id(self) -> str:
        """The id of the session."""

    @property
    def locked_until_ms(self) -> int:
        """The end of the session's lock (UTC ms), by the last renewal through this process."""


class NamespaceVerbs(NamespaceChanges, Protocol):
    """The entities of a namespace, and all verbs on them."""

    def entity(self, path: EntityPath) -> model.Entity:
        """Return the definition of an entity.

        Raises:
            EntityNotFound: there is no entity of this name.
        """

    def send_entity(self, path: EntityPath) -> model.SendEntity:
        """Return the definition of an entity to send to.

        Raises:
            EntityNotFound: there is no entity of this name.
            NotAllowed: a subscription or sub-queue takes no messages from senders.
        """

    def message_bytes_max(self, path: EntityPath) -> int:
        """Return the size of the largest message that may be sent to an entity.

        Raises:
            ServiceBusError: as `send_entity`.
        """

    def receive_entity(self, path: EntityPath) -> model.ReceiveEntity:
        """Return the definition of an entity to receive from.

        Raises:
            EntityNotFound: there is no entity of this name, or it is a topic.
        """

    async def send(self, path: EntityPath, batch: Sequence[Outgoing]) -> None:
        """Do what `begin_sending` does; return when RabbitMQ has confirmed, or raise the error."""

    def begin_sending(self, path: EntityPath, batch: Sequence[Outgoing], done: OnSent) -> None:
        """Store all messages or none; messages are stored in the order of the calls.

        `done` is called once, now or later: with `None` when RabbitMQ has confirmed them, or with
        the error.

        Errors:
            OperationTimeout: whether the messages are stored is unknown. After any other error none
                is stored, nor will be.
            ServerBusy: RabbitMQ takes no messages now.
            MessageSizeExceeded, EntityDisabled, NotAllowed, QuotaExceeded: see `model.errors`.
        """

    async def begin_sending_each(
        self, path: EntityPath, each: Iterator[Outgoing], done: OnSent
    ) -> None:
        """Do what `begin_sending` does with a batch of any number of messages, made one by one.

        Other tasks get turns of the event loop meanwhile. Returns when the batch is published, or
        raises what the iterator raises, or the error of `begin_sending`: then nothing is stored,
        and `done` is not called.
        """

    async def schedule(
        self, path: EntityPath, batch: Sequence[Outgoing], moved: Sequence[int] | None = None
    ) -> list[int]:
        """Store messages for later (each has `scheduled_ms`); returns their sequence numbers.

        `moved` names a scheduled message for each, whose place it takes, all or none; none twice.

        Raises:
            ServiceBusError: as for `begin_sending`; with `moved` also MessageNotFound, if one is
                not scheduled, and NotImplementedHere, if a bridge does not know how.
        """

    async def cancel_scheduled(self, path: EntityPath, numbers: Sequence[int]) -> None:
        """Remove scheduled messages, all of them or none.

        Raises:
            MessageNotFound: one of the numbers is not that of a scheduled message.
        """

    def check_known(self, feature: str) -> None:
        """Raise ServerBusy while a bridge of the namespace does not know a feature.

        Any bridge may be the next leader of an entity; see `engine.membership.FEATURES`.
        """

    def open_receiver(self, path: EntityPath, *, mode: ReceiveMode, deliver: Deliver) -> Receiver:
        """Return a receiver without credit; `deliver` is called in the loop with each message.

        Raises:
            EntityNotFound, EntityDisabled, NotAllowed: see `model.errors`.
        """

    async def receive_deferred(
        self,
        path: EntityPath,
        numbers: Sequence[int],
        mode: ReceiveMode,
        session_id: str | None = None,
    ) -> list[Received]:
        """Return the deferred messages with these sequence numbers, in this order.

        Args:
            session_id: the messages' session, for an entity that requires sessions: a receiver must
                hold its lock.

        Raises:
            MessageNotFound: one of them does not exist, or is locked; then none is received.
            SessionLockLost: no receiver holds the session.
            EntityNotFound, EntityDisabled, ServerBusy: see `model.errors`.
        """

    async def accept_session(
        self,
        path: EntityPath,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        deliver: Deliver,
        on_lost: Callable[[ServiceBusError], None],
        timeout_s: float,
    ) -> SessionReceiver:
        """Lock a session and return its receiver, without credit.

        Cancelling this call ends the wait, and gives back a session that has just been given.

        Args:
            session_id: the session's id, also of one without messages; `None`: the next session
                that has messages and no receiver; of waiting receivers the first gets it.
            deliver: called in the loop with each message.
            on_lost: called once, in the loop, when the lock ends without `close`: it has expired,
                the owner of the entity's sessions has changed, or the entity was deleted.
            timeout_s: the longest wait for a session.

        Raises:
            SessionCannotBeLocked: another receiver holds the session.
            OperationTimeout: no session was given in time.
            ArgumentOutOfRange: the session id is too long.
            NotAllowed: the entity does not require sessions.
            EntityNotFound, EntityDisabled, ServerBusy: see `model.errors`.
        """

    async def renew_session_lock(self, path: EntityPath, session_id: str) -> int:
        """Give a session's lock its full duration from now; returns its new end (UTC ms).

        Raises:
            SessionLockLost: no receiver holds the session.
            ServerBusy, OperationTimeout: see `model.errors`.
        """

    async def session_state(self, path: EntityPath, session_id: str) -> bytes | None:
        """Return the state that was stored with a session, or `None`.

        Raises:
            SessionLockLost: no receiver holds the session.
            ServerBusy, OperationTimeout: see `model.errors`.
        """

    async def set_session_state(
        self, path: EntityPath, session_id: str, state: bytes | None
    ) -> None:
        """Store a state with a session (256 KB at most), or clear it with `None`.

        Returns when a crash can no longer undo it.

        Raises:
            SessionLockLost: no receiver holds the session.
            MessageSizeExceeded: the state is too large.
            ServerBusy, OperationTimeout: see `model.errors`.
        """

    async def list_sessions(
        self, path: EntityPath, *, updated_after_ms: int | None, skip: int, top: int
    ) -> list[str]:
        """Return up to `top` session ids after the first `skip`, in a stable order.

        Args:
            updated_after_ms: only sessions whose state was set after this time (UTC ms); `None`:
                all sessions with messages or a state.

        Raises:
            ServerBusy, OperationTimeout: see `model.errors`.
        """

    async def delete_messages(
        self, path: EntityPath, count: int, before_ms: int, session_id: str | None = None
    ) -> int:
        """Delete up to `count` waiting messages, oldest first; return the count of deleted ones.

        Locked, deferred and scheduled messages stay. One call may delete fewer than there are: call
        again until none is deleted.

        Args:
            before_ms: only messages enqueued before this time (UTC ms).
            session_id: the messages' session, for an entity that requires sessions: a receiver must
                hold its lock.

        Raises:
            SessionLockLost: no receiver holds the session.
            ServerBusy: none was deleted, and RabbitMQ does not tell whether there are any.
            EntityNotFound, EntityDisabled, NotAllowed: see `model.errors`.
        """

    async def lock_messages(self, path: EntityPath, numbers: Sequence[int]) -> NumberedLocks:
        """Lock the active messages, or dead letters, with these sequence numbers.

        Those that stand before them are held for a moment, and go back uncounted, in order.

        Raises:
            NotAllowed: the entity requires sessions, or forwards its messages.
            NotImplementedHere: RabbitMQ is older than 4.3: it counts what goes back as failed.
            EntityNotFound, EntityDisabled, ServerBusy: see `model.errors`.
        """

    async def peek(
        self, path: EntityPath, start: int, count: int, session_id: str | None = None
    ) -> list[Received]:
        """Return up to `count` messages from a sequence number on, without locking any.

        Args:
            path: a queue, a subscription, a dead-letter sub-queue, or a topic, which has scheduled
                messages only.
            session_id: only messages of this session.

        Raises:
            EntityNotFound, EntityDisabled, ServerBusy: see `model.errors`.
        """

    async def settle(self, path: EntityPath, lock_token: UUID, disposition: Disposition) -> None:
        """Settle a locked message; returns when a crash can no longer undo that.

        Raises:
            MessageLockLost: the token is unknown, its lock has ended, or RabbitMQ does not take the
                settlement's publish now (`settling.refusal` says why this is no ServerBusy).
            QuotaExceeded: a deferred message has no room.
            ArgumentOutOfRange, NotAllowed: see `model.errors`.
        """

    def begin_settling(
        self, path: EntityPath, lock_token: UUID, disposition: Disposition, done: OnSettled
    ) -> None:
        """Settle a locked message; settlements begin in the order of the calls.

        When this returns, a lock of this process has ended. What is asked next (another settlement,
        credit, the receiver's end) is behind the settlement. `done` is called once, perhaps before
        this returns: with `None` when a crash can no longer undo the settlement, else with the
        error that `settle` would raise.
        """

    def flush(self) -> None:
        """Do now the work that was collected for the end of this turn of the event loop."""

    async def renew_locks(self, path: EntityPath, lock_tokens: Sequence[UUID]) -> list[int]:
        """Give each lock its full duration from now; returns the new ends (UTC ms), in order.

        Raises:
            MessageLockLost: one of the tokens is unknown or its lock has ended.
        """
