"""Waiting work, with reason and begin: health names each wait of more than 2 s."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from datetime import UTC, datetime
from types import TracebackType

LATE_S = 2.0
"""Time after which health names what waits."""

NAMED_MAX = 5
"""Maximum number of waits that health names; there may be thousands."""


class Wait:
    """A piece of work that waits, from its `Waits.begin` to its `end`; a context manager as well.

    Attributes:
        subject: what waits: an entity's path, or a part of the bridge.
        reason: for what it waits, as the end of a sentence; may be changed at any time.
    """

    __slots__ = ("_all", "reason", "since_s", "subject")

    def __init__(self, waits: dict[Wait, None], subject: str, reason: str, since_s: float) -> None:
        self._all = waits
        self.subject = subject
        self.reason = reason
        self.since_s = since_s
        waits[self] = None

    def __repr__(self) -> str:
        return f"Wait({self.subject!r}, {self.reason!r})"

    def end(self) -> None:
        """Note that the work goes on; a second call does nothing."""
        self._all.pop(self, None)

    def __enter__(self) -> Wait:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


class RepeatedWait:
    """A piece of work that waits now and then.

    Args:
        subject: as that of `Waits.begin`.
    """

    def __init__(self, waits: Waits, subject: str) -> None:
        self._waits = waits
        self._subject = subject
        self._wait: Wait | None = None

    @property
    def is_begun(self) -> bool:
        """Whether it waits now."""
        return self._wait is not None

    def begin(self, reason: str) -> None:
        """Note that it waits, and for what; of one that waits already only the reason changes."""
        if self._wait is None:
            self._wait = self._waits.begin(self._subject, reason)
        self._wait.reason = reason

    def end(self) -> None:
        """Note that the work goes on; a second call does nothing."""
        if self._wait is not None:
            self._wait.end()
            self._wait = None


class Waits:
    """The work of this process that waits now.

    Args:
        clock: a monotonic time in seconds.
        wall: the time since 1970 in seconds (UTC), for sentences only.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._open: dict[Wait, None] = {}

    def __repr__(self) -> str:
        return f"Waits({list(self._open)!r})"

    def begin(self, subject: str, reason: str) -> Wait:
        """Note that something waits from now on.

        Args:
            subject: what waits: an entity's path, or a part of the bridge.
            reason: for what, as the end of a sentence: "its bucket queue is being declared".
        """
        return Wait(self._open, subject, reason, self._clock())

    @property
    def late(self) -> list[Wait]:
        """What has waited for longer than `LATE_S`, the longest first."""
        before_s = self._clock() - LATE_S
        return [wait for wait in self._open if wait.since_s < before_s]  # they are in this order

    @property
    def longest_s(self) -> float:
        """How long what waits longest has waited; 0 when nothing waits."""
        return max((self._clock() - wait.since_s for wait in self._open), default=0.0)

    def sentences(self, unless: Container[str] = frozenset()) -> list[str]:
        """Return a sentence for each of `late`, `NAMED_MAX` at most.

        Args:
            unless: subjects that are left out: health has named them already.
        """
        late = [wait for wait in self.late if wait.subject not in unless]
        if not late:
            return []
        ahead_s = self._wall() - self._clock()
        named = [
            f"{wait.subject!r} waits since "
            f"{datetime.fromtimestamp(wait.since_s + ahead_s, UTC):%Y-%m-%dT%H:%M:%SZ}: "
            f"{wait.reason}."
            for wait in late[:NAMED_MAX]
        ]
        return named + ([f"{len(late) - NAMED_MAX} more wait."] if late[NAMED_MAX:] else [])
