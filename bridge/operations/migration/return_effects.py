"""What the way back of an entity wants done beside peeks, and what it knows of messages, as values.

Peeks, pauses and answers are those of the copy (`copy_effects.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bridge.operations.migration.copy_effects import CancelAtSource, CopyEffect, PeekedMessage
from bridge.operations.migration.verification import fingerprint
from bridge.remote.message import RemoteMessage, State
from bridge.wire.amqp10.errors import DecodeError

BROUGHT: Final = "busbridge-brought"
"""The application property of a message that was brought from the target: what it was there."""

_DIGEST_BYTES: Final = 7
"""With two states and a flag a message takes 64 bits of a ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnMessage(PeekedMessage):
    """A message of either side.

    Attributes:
        state: active (dead letters, too), deferred or scheduled.
        enqueued_ms: when it was enqueued, UTC ms; 0: it is not known.
        brought: what the property `BROUGHT` says; "" where it has none.
    """

    state: State = "active"
    enqueued_ms: int = 0
    brought: str = ""


def return_message(message: RemoteMessage, *, is_dead: bool) -> ReturnMessage:
    """Return what the way back has to know of a message; one that cannot be read has number 0.

    Only what can be read in all its parts can be told from another one for sure.

    Its digest is the same in any state: of body, properties and enqueued time. A scheduled message
    has no enqueued time.

    Args:
        is_dead: it is in a dead-letter queue.
    """
    number = enqueued_ms = 0
    session_id: str | None = None
    brought = ""
    state: State = "active"
    with suppress(DecodeError):
        number = message.sequence_number or 0
        enqueued_ms = int(message.enqueued_time_ms or 0)
        session_id = message.session_id
        state = message.state
        found = message.application_property_values.get(BROUGHT)
        brought = found if isinstance(found, str) else ""
    due_ms = None
    if state == "scheduled":
        due_ms = int(message.scheduled_enqueue_time_ms or 0)
    parts = fingerprint(message, is_dead=is_dead).digests
    if "properties" not in parts:
        number = 0
    return ReturnMessage(
        number=number,
        order=number,
        digest=_digest(parts, is_timed=due_ms is None),
        due_ms=due_ms,
        session_id=session_id,
        size_bytes=message.size_bytes,
        message=message,
        state=state,
        enqueued_ms=enqueued_ms,
        brought=brought,
    )


def _digest(parts: Mapping[str, bytes], *, is_timed: bool) -> bytes:
    digest = hashlib.blake2b(parts["body"], digest_size=_DIGEST_BYTES)
    digest.update(parts.get("properties", b""))
    if is_timed:
        digest.update(parts.get("enqueued_time", b""))
    return digest.digest()


def brought_text(target: str, message: ReturnMessage) -> str:
    """Return what the property `BROUGHT` says of a message of the target.

    Args:
        target: the entity there, by namespace, path and the time at which it was made.
    """
    digest = hashlib.blake2b(target.encode(), digest_size=8).hexdigest()
    return f"{digest}/{message.number}/{message.digest.hex()}"


def brought_from(target: str, text: str) -> tuple[int, int] | None:
    """Return number and digest of what was brought; `None`: not from this entity of the target."""
    digest, _, rest = text.partition("/")
    if digest != hashlib.blake2b(target.encode(), digest_size=8).hexdigest():
        return None
    number, _, message = rest.partition("/")
    try:
        return int(number), int(message, 16)
    except ValueError:
        return None


class SettledAs(Enum):
    """How messages are settled at the source."""

    COMPLETED = "completed"
    DEFERRED = "deferred"
    DEAD_LETTERED = "dead-lettered"


@dataclass(frozen=True, slots=True)
class HoldForReturn:
    """Read the states of the target's sessions, then hold the target's entity.

    Answered with `CopyDone`, or with `CopyRefused`, which names a session.
    """


@dataclass(frozen=True, slots=True)
class AgreeToReturn:
    """Have the account of all entities agreed to; `CopyDone`. Nothing was settled or sent yet."""


@dataclass(frozen=True, slots=True)
class SetSessionStates:
    """Set at the source the states of sessions that were read at the target.

    Answered with `CopyDone`, or with `CopyRefused`, which names a session.
    """


@dataclass(frozen=True, slots=True)
class SettleAtSource:
    """Lock messages at the source by their numbers, and settle them; `CopyDone`.

    What cannot be locked, or is not settled for sure, shows when both sides are looked at again.

    Attributes:
        place: the index of the place.
        how: what becomes of them.
        is_deferred: they are deferred there, and received by number.
        messages: the messages. Of those that are dead-lettered these are the target's, as they say
            why.
        session_id: their session, where the place has sessions.
    """

    place: int
    how: SettledAs
    is_deferred: bool
    messages: tuple[tuple[int, RemoteMessage | None], ...]
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class BringToSource:
    """Send messages of the target to the source with `BROUGHT`, scheduled ones for their time.

    Answered with `CopyDone`, with `CopyUnanswered` when they may be sent or not, or with
    `CopyRefused`.

    Attributes:
        place: the index of their place at the target.
        messages: they, and what `BROUGHT` says of each.
    """

    place: int
    messages: tuple[tuple[ReturnMessage, str], ...]


@dataclass(frozen=True, slots=True)
class AwaitLocks:
    """Wait until no lock that was given before the hold can live any more; `CopyDone`."""


@dataclass(frozen=True, slots=True)
class CloseTarget:
    """Disable the target's entity, then end its hold; `CopyDone`.

    An entity that is disabled has come back.
    """


ReturnEffect = (
    CopyEffect
    | CancelAtSource
    | HoldForReturn
    | AgreeToReturn
    | SetSessionStates
    | SettleAtSource
    | BringToSource
    | AwaitLocks
    | CloseTarget
)
