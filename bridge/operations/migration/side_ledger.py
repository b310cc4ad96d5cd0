"""What one side has of the messages of a queue and its dead-letter queue, by number."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from bridge.model.session_id import FoldedId, fold
from bridge.operations.migration.copy_effects import CopyStopped
from bridge.operations.migration.last_copied import LastCopied
from bridge.operations.migration.return_effects import ReturnMessage
from bridge.remote.message import State

_STATES: Final[tuple[State, ...]] = ("active", "deferred", "scheduled")
_DEAD, _LATE, _STATE_BITS = 4, 8, 3


class SideLedger:
    """The messages of one series at one side, in some 25 bytes each.

    They are noted in any order, and found when the ledger is closed. Of a number that was noted
    twice, as a message moves while it is read, the last one counts.

    Args:
        path: of the queue, for errors.
        copied: what a run has copied; what is above is late; `None`: nothing is.
        has_sessions: the queue is received by session; its dead-letter queue never is.

    Attributes:
        session_ids: the sessions of the queue's messages, where it has sessions.
        brought: what the property `BROUGHT` says of messages, by number.
    """

    def __init__(
        self, path: str, copied: LastCopied | None = None, *, has_sessions: bool = False
    ) -> None:
        self.path = path
        self._has_sessions = has_sessions
        self._copied = copied
        self._numbers = array("q")
        self._values = array("Q")
        self._sessions = array("l")
        self.session_ids: list[str] = []
        self._sessions_known: dict[FoldedId, int] = {}
        self.brought: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def note(self, message: ReturnMessage, *, is_dead: bool) -> None:
        """Note a message.

        Raises:
            CopyStopped: it has no number.
        """
        if message.number <= 0:
            raise CopyStopped(f"{self.path}: a message cannot be read: receive it first.")
        self._numbers.append(message.number)
        is_late = self._copied is not None and not self._copied.has(message.number)
        flags = _STATES.index(message.state) | _DEAD * is_dead | _LATE * is_late
        self._values.append(int.from_bytes(message.digest) << 8 | flags)
        if self._has_sessions:
            is_alone = is_dead or message.session_id is None
            self._sessions.append(-1 if is_alone else self._session(message.session_id or ""))
        if message.brought:
            self.brought[message.number] = message.brought

    def _session(self, session_id: str) -> int:
        known = self._sessions_known.setdefault(fold(session_id), len(self.session_ids))
        if known == len(self.session_ids):
            self.session_ids.append(session_id)
        return known

    def close(self) -> None:
        """Bring the messages into the order of their numbers."""
        numbers = self._numbers
        if all(numbers[at] < numbers[at + 1] for at in range(len(numbers) - 1)):
            return
        kept: list[int] = []
        for at in sorted(range(len(numbers)), key=numbers.__getitem__):
            if kept and numbers[kept[-1]] == numbers[at]:
                kept.pop()
            kept.append(at)
        self._numbers = array("q", (numbers[at] for at in kept))
        self._values = array("Q", (self._values[at] for at in kept))
        if self._sessions:
            self._sessions = array("l", (self._sessions[at] for at in kept))

    def number(self, at: int) -> int:
        """Return the number of a message by its place in the order."""
        return self._numbers[at]

    def digest(self, at: int) -> int:
        """Return its digest."""
        return self._values[at] >> 8

    def state(self, at: int) -> State:
        """Return its state, of the queue where it is."""
        return _STATES[self._values[at] & _STATE_BITS]

    def is_dead(self, at: int) -> bool:
        """Whether it is in the dead-letter queue."""
        return bool(self._values[at] & _DEAD)

    def is_late(self, at: int) -> bool:
        """Whether it came behind the copy."""
        return bool(self._values[at] & _LATE)

    def session(self, at: int) -> str | None:
        """Return its session."""
        known = self._sessions[at] if self._has_sessions else -1
        return self.session_ids[known] if known >= 0 else None

    def find(self, number: int, digest: int) -> int | None:
        """Return where a message is in the order; `None`: it is not there, or another one is."""
        at = bisect_left(self._numbers, number)
        if at == len(self._numbers) or self._numbers[at] != number or self.digest(at) != digest:
            return None
        return at
