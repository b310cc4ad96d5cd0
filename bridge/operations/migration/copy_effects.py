"""What the copy of an entity wants done, and what it is told, as values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from bridge.operations.migration.state_counts import state_of
from bridge.operations.migration.verification import Side, compared_values
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.errors import DecodeError

DIGEST_BYTES: Final = 16

_AT_ACTIVATION: Final = ("enqueued_time", "delivery_count")
"""Parts that a scheduled message gets when it is activated; what it has before is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlace:
    """A path at which messages of an entity are: a queue, a dead-letter queue, a topic.

    Attributes:
        path: the same at both sides.
        is_dead: its messages are dead letters.
        series: places of one series share their numbers, as a queue and its dead-letter queue; no
            number is in two of them.
        is_ordered_by_topic: the messages are ordered by their EnqueuedSequenceNumber first: those
            of a topic's subscriptions.
        has_sessions: its messages are in sessions, so that peeks may show them in any order.
        renumbered_by: the run that gives its messages new numbers, as the target has given numbers
            itself; "": they keep theirs.
    """

    path: str
    is_dead: bool = False
    series: int = 0
    is_ordered_by_topic: bool = False
    has_sessions: bool = False
    renumbered_by: str = ""

    @property
    def anew(self) -> str:
        """What is to be done where the target is no copy, as sentences."""
        if self.renumbered_by:
            return (
                "`busbridge migrate run --renumber --give-up` ends the hold, and says how to "
                "remove the copies."
            )
        return "Delete the entity at the target, and begin again."


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedMessage:
    """A message that a peek has shown.

    Attributes:
        number: its sequence number.
        order: its EnqueuedSequenceNumber; its number where it has none.
        digest: of its values; two messages with the same one are the same. b"": it was not asked
            for, and is made when it is needed (`digest_of`).
        encoded_digest: of its bytes; two messages with the same one are the same, and two with
            others may be. b"": none.
        due_ms: when it is due (UTC ms); `None`: it is not scheduled.
        session_id: its session.
        size_bytes: its size as it is sent.
        message: the message itself.
        target_number: its number at the target; `None`: the same.
        is_own: it is one of the target's own, where these stay.
    """

    number: int
    order: int
    digest: bytes
    due_ms: int | None = None
    session_id: str | None = None
    size_bytes: int = 0
    message: RemoteMessage = field(default_factory=RemoteMessage)
    target_number: int | None = None
    is_own: bool = False
    encoded_digest: bytes = b""

    @property
    def shown_number(self) -> int:
        """The number under which a peek shows it."""
        return self.number if self.target_number is None else self.target_number


def peeked(message: RemoteMessage, *, is_dead: bool, is_noted: bool = True) -> PeekedMessage:
    """Return what a copy has to know of a message.

    A message that cannot be read has the number 0.

    Args:
        is_dead: it is in a dead-letter queue.
        is_noted: whether its session and the digest of its values are needed.
    """
    encoded = message.encode()
    number = order = 0
    due_ms = session_id = None
    with suppress(DecodeError):
        number = message.sequence_number or 0
        order = message.enqueued_sequence_number or number
        session_id = message.session_id if is_noted else None
        if message.state == "scheduled":
            due_ms = message.scheduled_enqueue_time_ms or 0
    return PeekedMessage(
        number=number,
        order=order,
        digest=digest_of(message, is_dead=is_dead) if is_noted else b"",
        due_ms=due_ms,
        session_id=session_id,
        size_bytes=len(encoded),
        message=message,
        encoded_digest=hashlib.blake2b(encoded, digest_size=DIGEST_BYTES).digest(),
    )


def digest_of(message: RemoteMessage, *, is_dead: bool) -> bytes:
    """Return the digest of a message's values."""
    state = state_of(message, is_dead=is_dead)
    apart = _AT_ACTIVATION if state == "scheduled" else ()
    parts = [state.encode()]
    for name, value in compared_values(message).items():
        if name not in apart:
            parts += (b"%s %d:" % (name.encode(), len(value)), value)
    return hashlib.blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


# -- what it wants done


@dataclass(frozen=True, slots=True)
class HoldTarget:
    """Hold the target's entity for this run; answered with `TargetHeld`."""


@dataclass(frozen=True, slots=True)
class PeekPage:
    """Peek at a place; answered with the messages of the page, none at the end.

    Attributes:
        place: the index of the place.
        from_number: the lowest number.
        count: how many messages at most.
        session_id: those of this session alone.
        is_noted: whether the sessions of its messages and the digests of their values are needed.
    """

    side: Side
    place: int
    from_number: int
    count: int
    session_id: str | None = None
    is_noted: bool = False


@dataclass(frozen=True, slots=True)
class ListSourceSessions:
    """Name all sessions of a place at the source; answered with their ids."""

    place: int


@dataclass(frozen=True, slots=True)
class CountSource:
    """Ask the source how many messages a place has, in all states; answered with `CopyCount`."""

    place: int


@dataclass(frozen=True, slots=True)
class ReadLastNumbers:
    """Ask the target which number a place has given last; answered with `LastNumbers`."""

    place: int


@dataclass(frozen=True, slots=True)
class ImportBatch:
    """Import messages at the target in one transfer, all or none.

    Answered with `CopyDone`, with `CopyUnanswered` when no answer came, or with `CopyRefused`.

    Attributes:
        messages: each with the index of its place, in the order in which they are imported.
    """

    messages: tuple[tuple[int, PeekedMessage], ...]


@dataclass(frozen=True, slots=True)
class CopyPause:
    """Wait a second: the target shows what it has taken a little later; `CopyDone`."""


@dataclass(frozen=True, slots=True)
class ReadSourceStates:
    """Accept sessions of a place at the source, and read their states.

    Answered with `SourceStates`, or with `CopyRefused`, which names the session: somebody has it.
    """

    place: int
    session_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListTargetStates:
    """Name all sessions of a place that have a state at the target; answered: `TargetStates`."""

    place: int


@dataclass(frozen=True, slots=True)
class StoreTargetStates:
    """Store states at the target; each may be there already.

    Answered with `CopyDone`, or with `CopyRefused`, which names the session.

    Attributes:
        states: sessions, each with its state.
    """

    place: int
    states: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class AwaitOthers:
    """Wait until all entities of the run are verified; answered with `SourceRecounted`."""


@dataclass(frozen=True, slots=True)
class AwaitMark:
    """Wait until all were looked at again, and the target has a mark that they are verified.

    Answered with `CopyDone`. A run that finds the mark goes on behind this.
    """


@dataclass(frozen=True, slots=True)
class CancelAtSource:
    """Cancel scheduled messages at the source; those that were activated meanwhile stay.

    Answered with `CopyDone`.
    """

    place: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AwaitCancelled:
    """Wait until nothing is scheduled at the source any more, of any entity of the run.

    And until it was seen that nothing of it was due before, and is there. Answered with `CopyDone`.
    """


@dataclass(frozen=True, slots=True)
class ReleaseTarget:
    """End the hold of the target's entity; answered with `CopyDone`."""


CopyEffect = (
    HoldTarget
    | PeekPage
    | ListSourceSessions
    | CountSource
    | ReadLastNumbers
    | ImportBatch
    | CopyPause
    | ReadSourceStates
    | ListTargetStates
    | StoreTargetStates
    | AwaitOthers
    | AwaitMark
    | CancelAtSource
    | AwaitCancelled
    | ReleaseTarget
)


# -- what it is told


@dataclass(frozen=True, slots=True)
class CopyDone:
    """It is done."""


@dataclass(frozen=True, slots=True)
class CopyUnanswered:
    """It may be done, or not."""


@dataclass(frozen=True, slots=True)
class CopyRefused:
    """It is not done, and is not when it is asked for again.

    Attributes:
        text: why, as a sentence.
    """

    text: str


@dataclass(frozen=True, slots=True)
class TargetHeld:
    """The target's entity is held by this run.

    Attributes:
        is_new: it was not held before, so that its messages are not this run's.
        batch_bytes: what one transfer takes at most; 0: it has not said.
        was_empty: this run has held it for the first time, and seen that it had no messages; or
            none of this run's, where messages of its own stay.
    """

    is_new: bool
    batch_bytes: int = 0
    was_empty: bool = False


@dataclass(frozen=True, slots=True)
class LastNumbers:
    """The last numbers of a place's series at the target, behind all that was imported before.

    Attributes:
        numbers: of each partition, each with whether an import is known to have it.
    """

    numbers: tuple[tuple[int, bool], ...]


@dataclass(frozen=True, slots=True)
class SourceStates:
    """The sessions that have a state, of those that were asked for, each with its state."""

    states: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class TargetStates:
    """All sessions that have a state, each with the SHA-256 of that."""

    digests: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class CopyCount:
    """What a namespace tells; `None`: it tells nothing.

    Attributes:
        count: the messages of a place.
        whole: those of it and of its dead-letter queue together.
    """

    count: int | None
    whole: int | None = None


@dataclass(frozen=True, slots=True)
class SourceRecounted:
    """All entities are verified, and the source was counted once more.

    Attributes:
        has_changed: it tells other counts of this entity than before the copy.
    """

    has_changed: bool


CopyAnswer = (
    CopyDone
    | SourceRecounted
    | CopyUnanswered
    | CopyRefused
    | CopyCount
    | LastNumbers
    | SourceStates
    | TargetStates
    | TargetHeld
    | Sequence[PeekedMessage]
    | Sequence[str]
)


class CopyStopped(Exception):
    """The copy cannot go on; its text names the message or session, and what to do."""
