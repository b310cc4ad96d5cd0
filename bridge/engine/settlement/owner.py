"""The owner of a locked message: its queue, and how a message is settled there."""

from __future__ import annotations

from typing import Protocol, TypeGuard, runtime_checkable

from bridge.engine.settlement.held_message import HeldMessage
from bridge.message.departure import MoveSource
from bridge.model.name import EntityPath


class Owner(MoveSource, Protocol):
    """The active messages, the dead letters, or the deferred messages of one entity.

    Attributes:
        path: the entity and sub-queue whose messages these are.
    """

    path: EntityPath

    def holds(self, holding: HeldMessage) -> bool:
        """Return whether a message is still unacked on an open channel of this process."""

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Ack a message; `point` is the failpoint behind the ack."""

    def give_back(self, holding: HeldMessage, point: str) -> None:
        """Make a message available again with its delivery count raised by 1."""

    def release(self, holding: HeldMessage) -> None:
        """Make a message available again, its delivery count unchanged."""

    def departing(self, holding: HeldMessage) -> None:
        """Note that a message is about to be handed over to another queue, then acked."""

    def stayed(self, holding: HeldMessage) -> None:
        """Undo `departing` after a failed hand-over."""


class SessionsOfPins(Protocol):
    """Sessions that transactions keep."""

    def free(self, holding: HeldMessage) -> None:
        """Let the session of a message go on, if it is kept for that."""


@runtime_checkable
class OwnerOfSessions(Protocol):
    """An owner whose messages are available again when their sessions end."""

    @property
    def kept(self) -> SessionsOfPins:
        """Their sessions, as far as transactions keep them."""

    def keep_out(self, holding: HeldMessage) -> None:
        """Keep a message, and its session: its end makes neither available."""

    def let_go(self, holding: HeldMessage) -> bool:
        """Undo `keep_out`; return whether its receiver has the message again."""


def owns_sessions(owner: Owner) -> TypeGuard[OwnerOfSessions]:
    """Whether an owner's messages are available again when their sessions end."""
    kind = type(owner)
    known = _KINDS.get(kind)
    if known is None:
        known = _KINDS[kind] = isinstance(owner, OwnerOfSessions)
    return known


_KINDS: dict[type, bool] = {}
"""What `isinstance` says of each class: it looks at every attribute, at each call."""
