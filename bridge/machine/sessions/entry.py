"""The entry of a message of a session: state, and location in RabbitMQ."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from bridge.machine.queue.second_copies import Identity
from bridge.model.session_id import FoldedId

Message = TypeVar("Message")

NO_SESSION = FoldedId("")

READY = 0
"""The message waits for its session's receiver."""
COMING = 1
"""RabbitMQ has the message and brings it again; the session delivers no later message before."""
OUT = 2
"""The message was delivered under its session's lock, and is not settled."""
LEAVING = 3
"""The message is being settled, or moved to another queue."""

FETCHED = 1
"""The message is fetched to be published again: it is old."""
REFRESHED = 2
"""The message is published again, and no receiver has asked for it."""


class SessionEntry(Generic[Message]):
    """One message that this process holds, unacked.

    Attributes:
        number: the message's sequence number.
        identity: the message's identity, which all its copies share.
        generation: failed deliveries so far, by Service Bus's rules.
        deaths: how often the message was dead-lettered before.
        expires_ms: the time of the message's expiry (UTC ms), or `None` for never.
        session_id: the session id as the message has it; `folded`: the session itself, once the
            message is in the index.
        where: the message's location in RabbitMQ; opaque.
        message: the message, or `None` while its body is not in memory.
        size_bytes: the message's size.
        state: `READY`, `COMING`, `OUT` or `LEAVING`.
        seconds: second copies, which leave with the message: location, and how often dead-lettered.
        holder: who held the session at the last delivery; opaque.
        lock: the lock token of the last delivery; opaque.
        since: the count of `Ages` when the message came or was published again.
        refreshing: why RabbitMQ is to deliver the message again: `FETCHED` or `REFRESHED`, else 0.
    """

    __slots__ = (
        "deaths",
        "expires_ms",
        "folded",
        "generation",
        "holder",
        "identity",
        "lock",
        "message",
        "number",
        "refreshing",
        "seconds",
        "session_id",
        "since",
        "size_bytes",
        "state",
        "where",
    )

    def __init__(
        self,
        number: int,
        identity: Identity,
        generation: int,
        expires_ms: int | None,
        session_id: str,
        where: Any,
        message: Message | None,
        size_bytes: int,
        deaths: int = 0,
    ) -> None:
        self.number = number
        self.identity = identity
        self.generation = generation
        self.deaths = deaths
        self.expires_ms = expires_ms
        self.session_id = session_id
        self.folded = NO_SESSION
        self.where = where
        self.message: Message | None = message
        self.size_bytes = size_bytes
        self.state = READY
        self.seconds: list[tuple[Any, int]] | None = None
        self.holder: Any = None
        self.lock: Any = None
        self.since = 0
        self.refreshing = 0

    def __repr__(self) -> str:
        return f"SessionEntry({self.number} of {self.session_id!r}, state {self.state})"

    def __lt__(self, other: SessionEntry[Message]) -> bool:
        return self.number < other.number
