"""Effects: decisions of a strategy of receiving; the engine carries them out in order."""

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
    """Return a message to its queue; report `settling` first, as for any message."""

    message: Message


@dataclass(frozen=True, slots=True)
class Open:
    """Begin to consume with this prefetch: a **window**."""

    fetch: int
    size: int


@dataclass(frozen=True, slots=True)
class Get:
    """Get one message; report `counted` with the message, or `empty`."""

    fetch: int


@dataclass(frozen=True, slots=True)
class Look:
    """Ask RabbitMQ for the queue's counts of ready messages and of consumers; report `looked`.

    When no message is ready, report it once all messages that were on their way to windows have
    come.
    """

    fetch: int


@dataclass(frozen=True, slots=True)
class Close:
    """Cancel the consumer; report `closed` when RabbitMQ has answered."""

    fetch: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A withdrawal has ended: no more messages come of the credit taken back."""

    ticket: int


Effect = Deliver[Message] | Return[Message] | Open | Get | Look | Close | Withdrawn
