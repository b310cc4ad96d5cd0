"""What a client can do to a queue and see of it.

`at_ms` is the time on the one clock of the machine (UTC): of a request, before it was sent; of an
answer, after it arrived.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sent:
    """A send was begun: one message, or several that stand or fall together.

    Attributes:
        may_double: no door has stamped its own identity on it (a native publisher's message), so a
            kill may leave it numbered twice.
    """

    ids: tuple[str, ...]
    at_ms: int
    may_double: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """The send of these was answered."""

    ids: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule call, or a send with a time of its own, was begun.

    Attributes:
        takes_number: the call gives each message a number while it waits.
    """

    ids: tuple[str, ...]
    due_ms: int
    at_ms: int
    takes_number: bool = True


@dataclass(frozen=True, slots=True)
class Numbered:
    """The schedule call was answered with these numbers."""

    ids: tuple[str, ...]
    numbers: tuple[int, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A cancel was answered."""

    ids: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Cancelling:
    """A cancel was begun; unless it is answered it may have happened or not."""

    ids: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A receiver got a message.

    Attributes:
        locked_ms: when its lock began, by the service's word (its end less the lock duration).
        is_dead: it came from the dead-letter queue.
    """

    id: str
    number: int
    enqueued_ms: int
    count: int
    locked_ms: int
    locked_until_ms: int
    at_ms: int
    is_dead: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """A completion or a dead-lettering was answered; the message must not come back.

    Attributes:
        is_dead: what was settled had come from the dead-letter queue.
        is_dead_lettered: it was dead-lettered, not completed.
    """

    id: str
    number: int
    at_ms: int
    is_dead: bool = False
    is_dead_lettered: bool = False


@dataclass(frozen=True, slots=True)
class DeadLettering:
    """A dead-lettering was begun; unless it is answered it may have happened or not."""

    id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Returned:
    """A lock was given up by its holder before its end (abandon, release, close).

    Attributes:
        is_changed: with changed properties, so that the message was published anew.
    """

    id: str
    at_ms: int
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class Killed:
    """A bridge, or RabbitMQ, died; locks of that time may have ended with it.

    Attributes:
        at_ms: when it was seen to be dead.
        is_orderly: it was told to end, and did: it leaves nothing behind but ended locks.
        begun_ms: before it was killed, where that is known.
    """

    at_ms: int
    is_broker: bool = False
    is_orderly: bool = False
    begun_ms: int | None = None


Event = (
    Sent
    | Accepted
    | Scheduled
    | Numbered
    | Cancelling
    | Cancelled
    | Delivered
    | DeadLettering
    | Settled
    | Returned
    | Killed
)

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in Event.__args__}


def to_line(event: Event) -> str:
    """Return an event as a line of JSON."""
    return json.dumps({"event": type(event).__name__, **asdict(event)})


def from_line(line: str) -> Event:
    """Return the event of a line."""
    fields = json.loads(line)
    kind = _KINDS[fields.pop("event")]
    made: Event = kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
    )
    return made
