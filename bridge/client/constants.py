"""The enumerations of the SDK, by its names and values."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum


class _Lenient(StrEnum):
    """A text compared without case; `ServiceBusReceiveMode("PeekLock")` is a member."""

    @classmethod
    def _missing_(cls, value: object) -> _Lenient | None:
        text = str(value).lower()
        return next((each for each in cls if each.value == text), None)


class ServiceBusReceiveMode(_Lenient):
    """Whether a message is locked until settled, or deleted as soon as received."""

    PEEK_LOCK = "peeklock"
    RECEIVE_AND_DELETE = "receiveanddelete"


class ServiceBusSubQueue(_Lenient):
    """The sub-queue of an entity."""

    DEAD_LETTER = "deadletter"
    TRANSFER_DEAD_LETTER = "transferdeadletter"


class ServiceBusMessageState(IntEnum):
    """The state of a received or peeked message."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class AmqpMessageBodyType(StrEnum):
    """The form of a message's body."""

    DATA = "data"
    SEQUENCE = "sequence"
    VALUE = "value"


class TransportType(Enum):
    """The SDK's transport to Service Bus; accepted, and without a meaning on RabbitMQ."""

    Amqp = 1
    AmqpOverWebsocket = 2


class ServiceBusSessionFilter(Enum):
    """The choice of a session for a receiver without a session id."""

    NEXT_AVAILABLE = 0


NEXT_AVAILABLE_SESSION = ServiceBusSessionFilter.NEXT_AVAILABLE
"""The next session that has messages and no receiver."""
