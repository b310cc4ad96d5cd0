"""What Service Bus's attaches and outcomes say beside AMQP's own words: the names of both ends."""

from __future__ import annotations

from typing import Final

from bridge.wire.amqp10.scalars import Symbol

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
"""Key of a source's filter: a session id, or null for the next free session."""

TIMEOUT: Final = Symbol("com.microsoft:timeout")
"""Link property of a client's attach: how long the client waits, in milliseconds."""

LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")
"""Link property of a server's attach: the end of the session's lock, in .NET ticks."""

BATCH_BYTES_MAX: Final = Symbol("com.microsoft:max-message-batch-size")
"""Link property of a server's attach: the largest batch, in bytes."""

RELAY_SOURCE: Final = Symbol("com.busbridge:relay-source")
"""Link property of a sender's attach, and of a bridge's answer: the source whose messages come on
the link (`wire.relay_source`). A namespace that does not answer it does not heed it."""

RELAY_SUBSCRIPTION: Final = Symbol("com.busbridge:relay-subscription")
"""Link property beside `RELAY_SOURCE`, at a topic: the only subscription that gets what comes on
the link, whatever its rules say. A namespace that does not answer it would give it to all."""

IMPORT: Final = Symbol("com.busbridge:import")
"""Link property of a sender's attach, and of a bridge's answer: the migration's run whose messages
come on the link, and keep their numbers. A namespace that does not answer it would number them."""

TOPIC_CAPABILITY: Final = Symbol("topic")
SHARED_CAPABILITY: Final = Symbol("shared")
TEMPORARY_QUEUE_CAPABILITY: Final = Symbol("temporary-queue")
"""Capabilities of JMS's sources and targets: what kind of destination is asked for."""

SUBSCRIPTION_IDLE_S: Final = Symbol(
    "com.microsoft:subscriber-auto-delete-on-idle-duration-in-seconds"
)
QUEUE_IDLE_S: Final = Symbol("com.microsoft:queue-auto-delete-on-idle-duration-in-seconds")
"""Properties of the open of Azure's JMS client: AutoDeleteOnIdle of what is made for it."""

DEAD_LETTER: Final = "com.microsoft:dead-letter"
"""Condition of the rejection that moves a message to the dead-letter queue."""

_TICKS_OF_1970: Final = 621_355_968_000_000_000
_TICKS_A_MS: Final = 10_000


def ticks(utc_ms: int) -> int:
    """Return a time in .NET ticks, 100 ns since the year 1."""
    return utc_ms * _TICKS_A_MS + _TICKS_OF_1970


def utc_ms_of(dotnet_ticks: int) -> int:
    """Return a time of .NET ticks in milliseconds since 1970, rounded down."""
    return (dotnet_ticks - _TICKS_OF_1970) // _TICKS_A_MS
