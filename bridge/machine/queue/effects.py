"""Effects: decisions of the machine of a queue, to be carried out in order.

Those of the strategy of receiving (`credit.effects`) are among them: `Open`, `Get`, `Look`,
`Close`, `Deliver`, `Withdrawn`.
"""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

from bridge.machine.credit.effects import Close, Deliver, Get, Look, Open, Withdrawn
from bridge.machine.queue.fate import Fate

Message = TypeVar("Message")


class Ack:
    """Ack a received-and-deleted message, or (`is_copy`) a second copy."""

    __slots__ = ("held", "is_copy")

    def __init__(self, held: Any, is_copy: bool) -> None:
        self.held = held
        self.is_copy = is_copy

    def __repr__(self) -> str:
        return f"Ack({self.held!r}, {self.is_copy})"


class Requeue:
    """Return a message or a second copy to its queue.

    Attributes:
        is_counted: it counts as a failed delivery on every version of RabbitMQ; else before 4.3.
    """

    __slots__ = ("held", "is_counted")

    def __init__(self, held: Any, is_counted: bool) -> None:
        self.held = held
        self.is_counted = is_counted

    def __repr__(self) -> str:
        return f"Requeue({self.held!r}, {self.is_counted})"


class End(Generic[Message]):
    """Ack or dead-letter a message that has expired, or has failed too many deliveries."""

    __slots__ = ("fate", "message")

    def __init__(self, message: Message, fate: Fate) -> None:
        self.message = message
        self.fate = fate

    def __repr__(self) -> str:
        return f"End({self.message!r}, {self.fate})"


class SendBack(Generic[Message]):
    """Send a message that was published past the front exchange back, to be numbered."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message

    def __repr__(self) -> str:
        return f"SendBack({self.message!r})"


Settlement: TypeAlias = "Ack | Requeue | End[Any] | SendBack[Any]"
Effect: TypeAlias = "Settlement | Open | Get | Look | Close | Withdrawn | Deliver[Any]"
