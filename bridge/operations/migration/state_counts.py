"""The messages of an entity, counted by state: as a namespace tells it, or as peeks show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from bridge.model.counts import Counts
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.errors import DecodeError

CopiedState = Literal["active", "scheduled", "deferred", "dead_letter", "deferred_dead_letter"]
"""A message's state, and in which of an entity's two queues it is."""

COPIED_STATES: Final[tuple[CopiedState, ...]] = (
    "active",
    "scheduled",
    "deferred",
    "dead_letter",
    "deferred_dead_letter",
)

_DEAD_STATES: Final[Mapping[str, CopiedState]] = {
    "active": "dead_letter",
    "deferred": "deferred_dead_letter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCounts:
    """The messages of a queue, a topic or a subscription, and of its dead-letter queue.

    Attributes:
        counts: how many there are, by state.
        is_peeked: all were looked at. Else the counts are the namespace's own, `deferred` is what
            they leave of its MessageCount, and has the deferred dead letters in it.
        transfer: on their way to the entity that they are forwarded to.
        transfer_dead_letter: those in `$Transfer/$DeadLetterQueue`.
        told_bytes: the size that the namespace tells; `None` for a subscription, of which it tells
            none.
        bytes: the size of the messages, by state, as their sender wrote them; of a peek alone.
        largest: number and size in bytes of the largest message; of a peek alone.
        largest_copy: number and size of the largest copy, where copies say what number they had.
        unsayable: how many messages cannot say what number they had, where copies do; number and
            application property of the first of them.
        first_due_ms: when the first scheduled message is due (UTC ms); of a peek alone.
        unread: how many messages cannot be read; of a peek alone.
        sessions: how many sessions have messages or a state; `None`: nobody was asked.
        session_states: how many have a state; likewise.
    """

    counts: Mapping[CopiedState, int] = field(default_factory=dict)
    is_peeked: bool = False
    transfer: int = 0
    transfer_dead_letter: int = 0
    told_bytes: int | None = None
    bytes: Mapping[CopiedState, int] = field(default_factory=dict)
    largest: tuple[int, int] | None = None
    largest_copy: tuple[int, int] | None = None
    unsayable: tuple[int, int, str] | None = None
    first_due_ms: int | None = None
    unread: int = 0
    sessions: int | None = None
    session_states: int | None = None

    @property
    def total(self) -> int:
        """All messages that are to be copied."""
        return sum(self.counts.values())

    @property
    def size_bytes(self) -> int | None:
        """The size of all messages; `None` when nobody tells it."""
        return sum(self.bytes.values()) if self.is_peeked else self.told_bytes

    @property
    def deferred(self) -> int:
        """Deferred messages, of the entity and of its dead-letter queue."""
        return self.counts.get("deferred", 0) + self.counts.get("deferred_dead_letter", 0)


def told(counts: Counts, message_count: int, size_bytes: int | None) -> StateCounts:
    """Return what a namespace tells of an entity.

    Args:
        counts: its counts by state.
        message_count: its count of all messages. Deferred ones have no count of their own.
        size_bytes: its size; `None` where none is told.
    """
    named = counts.active + counts.scheduled + counts.dead_letter
    on_their_way = counts.transfer + counts.transfer_dead_letter
    found: dict[CopiedState, int] = {
        "active": counts.active,
        "scheduled": counts.scheduled,
        "deferred": max(0, message_count - named - on_their_way),
        "dead_letter": counts.dead_letter,
    }
    return StateCounts(
        counts={state: count for state, count in found.items() if count},
        transfer=counts.transfer,
        transfer_dead_letter=counts.transfer_dead_letter,
        told_bytes=size_bytes,
    )


class StateCounter:
    """Counts the messages that peeks show; it keeps none of them.

    Args:
        copy_bytes: the size of a message's copy; `None`: the message's own.
        unsayable: the property by which a message cannot say what number it had; "": none.
    """

    def __init__(
        self,
        copy_bytes: Callable[[RemoteMessage], int] | None = None,
        unsayable: Callable[[RemoteMessage], str] = lambda message: "",
    ) -> None:
        self._copy_bytes = copy_bytes
        self._property_of = unsayable
        self._unsayable: tuple[int, int, str] | None = None
        self._largest_copy: tuple[int, int] | None = None
        self._counts = Counter[CopiedState]()
        self._bytes = Counter[CopiedState]()
        self._largest: tuple[int, int] | None = None
        self._first_due_ms: int | None = None
        self._unread = 0

    def add(self, message: RemoteMessage, *, is_dead: bool) -> None:
        """Count a message.

        Args:
            is_dead: it is in the dead-letter queue.
        """
        state = state_of(message, is_dead=is_dead)
        try:
            number, due_ms = message.sequence_number or 0, message.scheduled_enqueue_time_ms
        except DecodeError:
            number, due_ms = 0, None
            self._unread += 1
        size_bytes = sent_bytes(message)
        self._counts[state] += 1
        self._bytes[state] += size_bytes
        if self._largest is None or size_bytes > self._largest[1]:
            self._largest = number, size_bytes
        if self._copy_bytes is not None:
            copy_bytes = self._copy_bytes(message)
            if self._largest_copy is None or copy_bytes > self._largest_copy[1]:
                self._largest_copy = number, copy_bytes
        if name := self._property_of(message):
            count, first, first_name = self._unsayable or (0, number, name)
            self._unsayable = count + 1, first, first_name
        if state == "scheduled" and due_ms is not None:
            self._first_due_ms = min(due_ms, self._first_due_ms or due_ms)

    def counted(
        self, given: StateCounts, sessions: int | None = None, session_states: int | None = None
    ) -> StateCounts:
        """Return what was counted, with what only the namespace itself tells.

        Args:
            given: what it tells.
            sessions, session_states: see `StateCounts`.
        """
        return StateCounts(
            counts=dict(self._counts),
            is_peeked=True,
            transfer=given.transfer,
            transfer_dead_letter=given.transfer_dead_letter,
            told_bytes=given.told_bytes,
            bytes=dict(self._bytes),
            largest=self._largest,
            largest_copy=self._largest_copy,
            unsayable=self._unsayable,
            first_due_ms=self._first_due_ms,
            unread=self._unread,
            sessions=sessions,
            session_states=session_states,
        )


def state_of(message: RemoteMessage, *, is_dead: bool) -> CopiedState:
    """Return the state of a message that was peeked; active for one that cannot be read.

    Args:
        is_dead: it is in the dead-letter queue.
    """
    state: CopiedState = "active"
    with suppress(DecodeError):
        state = message.state
    return _DEAD_STATES.get(state, "dead_letter") if is_dead else state


def sent_bytes(message: RemoteMessage) -> int:
    """Return the size of what a sender wrote: without what the namespace has added."""
    parts = (
        message.unread,
        message.header,
        message.properties,
        message.application_properties,
        message.body,
        message.footer,
    )
    return sum(map(len, parts))
