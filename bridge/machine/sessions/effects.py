"""Effects: decisions of the machine of sessions, to be carried out by the engine."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bridge.machine.queue.fate import Fate
from bridge.machine.sessions.entry import SessionEntry

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class Given:
    """A receiver holds a session from now on; `session_id` is spelt for this receiver."""

    receiver: Hashable
    session_id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class RefuseSession:
    """Another receiver holds the session that a receiver asks for."""

    receiver: Hashable


@dataclass(frozen=True, slots=True)
class LockExpired:
    """A receiver's lock has ended at its instant."""

    receiver: Hashable


@dataclass(frozen=True, slots=True)
class Deliver(Generic[Message]):
    """A message is delivered, until it is settled or the session's lock ends."""

    receiver: Hashable
    place: SessionEntry[Message]
    until_ms: int


@dataclass(frozen=True, slots=True)
class Unlock(Generic[Message]):
    """A delivered message is available again, with an unchanged count: the token ends."""

    place: SessionEntry[Message]


@dataclass(frozen=True, slots=True)
class ReturnCounted(Generic[Message]):
    """A delivered message is to come again, with its count raised by 1: the token ends."""

    place: SessionEntry[Message]


@dataclass(frozen=True, slots=True)
class Refresh(Generic[Message]):
    """An old message is to be published again, with an unchanged count: a new copy will come."""

    place: SessionEntry[Message]


@dataclass(frozen=True, slots=True)
class FetchBody(Generic[Message]):
    """A message is to be returned to RabbitMQ, to come again with the body."""

    place: SessionEntry[Message]


@dataclass(frozen=True, slots=True)
class End(Generic[Message]):
    """A message has expired, or has failed too many deliveries: `failed` more than it counts."""

    place: SessionEntry[Message]
    fate: Fate
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """A second copy is to be acked."""

    where: Any


@dataclass(frozen=True, slots=True)
class ComeAgain:
    """What has waited for a message that has left, and is no copy, is to be returned."""

    where: Any


Effect = (
    Given
    | RefuseSession
    | LockExpired
    | Deliver[Any]
    | Unlock[Any]
    | ReturnCounted[Any]
    | FetchBody[Any]
    | Refresh[Any]
    | End[Any]
    | Drop
    | ComeAgain
)
