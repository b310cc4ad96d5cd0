"""What the machine of sessions wants done."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bridge.machine.sessions.place import Place

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class Given:
    """A receiver holds a session from now on."""

    receiver: Hashable
    session_id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The session that a receiver asks for is another's."""

    receiver: Hashable


@dataclass(frozen=True, slots=True)
class Lost:
    """A receiver's lock has ended at its instant."""

    receiver: Hashable


@dataclass(frozen=True, slots=True)
class Deliver(Generic[Message]):
    """A message is its receiver's until the session's lock ends, or it is settled."""

    receiver: Hashable
    place: Place[Message]
    until_ms: int


@dataclass(frozen=True, slots=True)
class Unlock(Generic[Message]):
    """What was delivered is available again, its count unchanged: its token ends."""

    place: Place[Message]


@dataclass(frozen=True, slots=True)
class Count(Generic[Message]):
    """What was delivered is to come again, one more on its count: its token ends."""

    place: Place[Message]


@dataclass(frozen=True, slots=True)
class Refresh(Generic[Message]):
    """An old message is to be published again, its count unchanged: that copy is to come."""

    place: Place[Message]


@dataclass(frozen=True, slots=True)
class Fetch(Generic[Message]):
    """A message is to be returned to RabbitMQ, and to come again with its body."""

    place: Place[Message]


@dataclass(frozen=True, slots=True)
class Expire(Generic[Message]):
    """A message's time is over."""

    place: Place[Message]


@dataclass(frozen=True, slots=True)
class DeliveryCountExceeded(Generic[Message]):
    """A message has failed too often."""

    place: Place[Message]


@dataclass(frozen=True, slots=True)
class Drop:
    """A second copy is to be acked."""

    where: Any


Effect = (
    Given
    | Refused
    | Lost
    | Deliver[Any]
    | Unlock[Any]
    | Count[Any]
    | Fetch[Any]
    | Refresh[Any]
    | Expire[Any]
    | DeliveryCountExceeded[Any]
    | Drop
)
