"""What a gateway sees of the engine: the verbs of Service Bus, as protocols and values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol
from uuid import UUID

from bridge.message.envelopes import Outgoing
from bridge.message.received import Received as Received
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire.basic import Table


class ReceiveMode(Enum):
    """Whether a message is locked until it is settled, or gone as soon as it is delivered."""

    PEEK_LOCK = "PeekLock"
    RECEIVE_AND_DELETE = "ReceiveAndDelete"


class Undeliverable(Exception):
    """A gateway cannot show a message to any client."""


@dataclass(frozen=True, slots=True)
class Complete:
    """Done: the message is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """Available again at once, one more on its count; `properties` are merged into it."""

    properties: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """To the dead-letter sub-queue; reason and description become application properties."""

    reason: str | None = None
    description: str | None = None
    properties: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """Set aside: to be had by its sequence number only."""

    properties: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """Available again at once, its count unchanged."""


Disposition = Complete | Abandon | DeadLetter | Defer | Release


OnSettled = Callable[[ServiceBusError | None], None]
"""Called when a settlement is done, or has failed."""


class Receiver(Protocol):
    """One client's demand for messages of an entity."""

    def add_credit(self, count: int) -> None:
        """Ask for `count` more messages."""

    async def drain(self) -> None:
        """Take back all credit; when this returns nothing more is delivered until new credit."""

    def close(self) -> Awaitable[None]:
        """Take back all credit for good; locks stay until they are settled or expire.

        Nothing is delivered from the call on; the rest is done when what it returns is.
        """


class SessionReceiver(Receiver, Protocol):
    """A receiver that holds one session's lock: nobody else has the session's messages.

    Its messages come in the order of their numbers; after one that was abandoned, that one again.
    `close` ends the session's lock at once: what was delivered and is not settled is available to
    the session's next receiver, its count unchanged.
    """

    @property
    def session_id(self) -> str:
        """The session: the one that was asked for, or the one that was given."""

    @property
    def locked_until_ms(self) -> int:
        """The end of the session's lock (UTC ms), as it was last renewed through this process."""


class RuleVerbs(Protocol):
    """What changes the rules of subscriptions; a subscription is named by its path."""

    async def create_rule(self, subscription: str, rule: model.Rule) -> None:
        """Add a rule.

        Raises:
            InvalidRule, EntityNotFound, EntityAlreadyExists, QuotaExceeded: see `model.errors`.
        """

    async def delete_rule(self, subscription: str, name: str) -> None:
        """Take a rule away.

        Raises:
            EntityNotFound: there is no such subscription, or it has no such rule.
        """


class Namespace(Protocol):
    """The entities of a namespace and all that can be done with them."""

    @property
    def administration(self) -> RuleVerbs:
        """What changes definitions."""

    def entity(self, path: EntityPath) -> model.Entity:
        """Return the definition of an entity.

        Raises:
            EntityNotFound: there is none of that name.
        """

    def send_entity(self, path: EntityPath) -> model.SendEntity:
        """Return the definition of what messages can be sent to.

        Raises:
            EntityNotFound: there is none of that name.
            NotAllowed: it takes no messages from senders: a subscription, a sub-queue.
        """

    def receive_entity(self, path: EntityPath) -> model.ReceiveEntity:
        """Return the definition of what messages can be received from.

        Raises:
            EntityNotFound: there is none of that name, or it is a topic.
        """

    async def send(self, path: EntityPath, batch: Sequence[Outgoing]) -> None:
        """Store all messages or none; returns when RabbitMQ has confirmed them.

        Raises:
            ServerBusy: RabbitMQ takes nothing now.
            MessageSizeExceeded, EntityDisabled, NotAllowed, QuotaExceeded: see `model.errors`.
        """

    async def schedule(self, path: EntityPath, batch: Sequence[Outgoing]) -> list[int]:
        """Store messages for later (each has `scheduled_ms`); returns their sequence numbers."""

    async def cancel_scheduled(self, path: EntityPath, numbers: Sequence[int]) -> None:
        """Remove scheduled messages.

        Raises:
            MessageNotFound: one of the numbers is not that of a scheduled message.
        """

    def open_receiver(
        self, path: EntityPath, *, mode: ReceiveMode, deliver: Callable[[Received], None]
    ) -> Receiver:
        """Return a receiver without credit; `deliver` is called once a message, in the loop.

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
            session_id: their session, of an entity that requires sessions: its lock must be held.

        Raises:
            MessageNotFound: one of them is not there, or is locked; then none is received.
            SessionLockLost: nobody holds the session.
            EntityNotFound, EntityDisabled, ServerBusy: see `model.errors`.
        """

    async def accept_session(
        self,
        path: EntityPath,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
        on_lost: Callable[[ServiceBusError], None],
        timeout_s: float,
    ) -> SessionReceiver:
        """Lock a session and return its receiver, without credit.

        Cancelling this gives up the wait, and gives back a session that has just been given.

        Args:
            session_id: which session, also one without messages; `None`: the next one that has
                messages and no receiver, in order of arrival of those who wait.
            deliver: called once a message, in the loop.
            on_lost: called once, in the loop, when the lock ends without `close`: its time is
                over, the process that keeps the entity's sessions is gone, or the entity is.
            timeout_s: how long to wait for a next session.

        Raises:
            SessionCannotBeLocked: another receiver holds the session.
            OperationTimeout: no session was there in time.
            NotAllowed: the entity does not require sessions.
            EntityNotFound, EntityDisabled, ServerBusy: see `model.errors`.
        """

    async def renew_session_lock(self, path: EntityPath, session_id: str) -> int:
        """Give a session's lock its full duration from now; returns its new end (UTC ms).

        Raises:
            SessionLockLost: nobody holds the session.
            ServerBusy, OperationTimeout: see `model.errors`.
        """

    async def session_state(self, path: EntityPath, session_id: str) -> bytes | None:
        """Return what was stored with a session, or `None`.

        Raises:
            SessionLockLost: nobody holds the session.
            ServerBusy, OperationTimeout: see `model.errors`.
        """

    async def set_session_state(
        self, path: EntityPath, session_id: str, state: bytes | None
    ) -> None:
        """Store a state with a session (256 KB at most), or clear it with `None`.

        Returns when a crash can no longer undo it.

        Raises:
            SessionLockLost: nobody holds the session.
            QuotaExceeded: the state is too large.
            ServerBusy, OperationTimeout: see `model.errors`.
        """

    async def list_sessions(
        self, path: EntityPath, *, updated_after_ms: int | None, skip: int, top: int
    ) -> list[str]:
        """Return `top` session ids at most after the first `skip`, in a stable order.

        Args:
            updated_after_ms: sessions whose state was set after that (UTC ms); `None`: those that
                have messages or a state.

        Raises:
            ServerBusy, OperationTimeout: see `model.errors`.
        """

    async def delete_messages(
        self, path: EntityPath, count: int, before_ms: int, session_id: str | None = None
    ) -> int:
        """Delete messages that wait, the oldest first; return how many are gone.

        Locked, deferred and scheduled ones stay. It may be fewer than there are: ask again until
        none is deleted.

        Args:
            before_ms: only what was enqueued before (UTC ms).
            session_id: their session, of an entity that requires sessions: its lock must be held.

        Raises:
            SessionLockLost: nobody holds the session.
            ServerBusy: none is deleted, and RabbitMQ does not tell whether there are any.
            EntityNotFound, EntityDisabled, NotAllowed: see `model.errors`.
        """

    async def peek(
        self, path: EntityPath, start: int, count: int, session_id: str | None = None
    ) -> list[Received]:
        """Return messages from a sequence number on, `count` at most, without locking any.

        Args:
            path: of a queue or subscription, of a dead-letter sub-queue, or of a topic, which has
                its scheduled messages only.
            session_id: only messages of this session.

        Raises:
            EntityNotFound, EntityDisabled, ServerBusy: see `model.errors`.
        """

    async def settle(self, path: EntityPath, lock_token: UUID, disposition: Disposition) -> None:
        """End a lock; returns when a crash can no longer undo it.

        Raises:
            MessageLockLost: the token is unknown, its lock has ended, or RabbitMQ does not take
                what the settlement publishes now: never that a retry helps.
        """

    def complete(self, path: EntityPath, lock_token: UUID, done: OnSettled) -> bool:
        """Complete a message; `done` is called once when a crash can no longer undo it.

        The short way for what happens most. Returns False, and does nothing, when the lock may be
        another process's: `settle` asks that one.

        Raises:
            MessageLockLost: the token is unknown or its lock has ended; `done` is not called.
        """

    def flush(self) -> None:
        """Do at once what would be done at the end of this turn of the event loop."""

    async def renew_locks(self, path: EntityPath, lock_tokens: Sequence[UUID]) -> list[int]:
        """Give each lock its full duration from now; returns the new ends (UTC ms), in order.

        Raises:
            MessageLockLost: one of the tokens is unknown or its lock has ended.
        """
