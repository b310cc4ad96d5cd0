"""What a strategy of receiving decides: to be carried out by the engine, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from bridge.machine.credit.buffer import Message


@dataclass(frozen=True, slots=True)
class Deliver(Generic[Message]):
    """Give a buffered message to a receiver."""

    receiver: int
    message: Message


@dataclass(frozen=True, slots=True)
class Return(Generic[Message]):
    """Give a message back to its queue; report `settling` first, as for any message."""

    message: Message


@dataclass(frozen=True, slots=True)
class Open:
    """Begin to consume with this prefetch: a **window**."""

    fetch: int
    size: int


@dataclass(frozen=True, slots=True)
class Get:
    """Get one message; report `counted` with it, or `empty`."""

    fetch: int


@dataclass(frozen=True, slots=True)
class Look:
    """Ask RabbitMQ how many messages are ready, and how many consumers it has; report `looked`."""

    fetch: int


@dataclass(frozen=True, slots=True)
class Close:
    """Cancel the consumer; report `closed` when RabbitMQ has answered."""

    fetch: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A withdrawal has ended: nothing more comes of the credit that it took back."""

    ticket: int


Effect = Deliver[Message] | Return[Message] | Open | Get | Look | Close | Withdrawn
