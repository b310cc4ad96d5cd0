"""Suspects: queues without an answer from RabbitMQ, and the pauses before the next attempt.

A queue whose Raft server is stopped, or has no leader, ends each connection on which it is asked.
So every queue that was asked and had not answered when a connection ended in this way is a suspect:
asked again on a connection of its own, with growing pauses, until the queue answers and has nothing
under way there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 10.0
"""Pause between two attempts; a queue that is back is found within the longest pause."""

_SILENCES = (
    "does not have a replica on the local node",
    "is down or inaccessible",
    "process is stopped by supervisor",
)


@dataclass(slots=True)
class Suspect:
    """A queue that gave no answer, or an entity with silent queues.

    Attributes:
        name: the queue, or the entity whose queues these are.
        since_ms: the time of the first failure (UTC ms).
        error: RabbitMQ's text at the last failure.
        failures: number of failures.
        is_answering: the queue has answered since its last failure.
    """

    name: str
    since_ms: int
    error: str
    failures: int = 0
    is_answering: bool = False

    @property
    def sentence(self) -> str:
        """A sentence for people: the name, since when there is no answer, and RabbitMQ's error."""
        since = datetime.fromtimestamp(self.since_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"RabbitMQ gives no answer for {self.name!r} since {since}: {self.error}."


class Suspects:
    """All suspects of one pool of connections."""

    def __init__(self) -> None:
        self._suspects: dict[str, Suspect] = {}

    def __repr__(self) -> str:
        return f"Suspects({list(self._suspects)})"

    def __contains__(self, name: str) -> bool:
        return name in self._suspects

    def failed(self, name: str, error: str, now_ms: int) -> None:
        """Note that a queue gave no answer, or may have given none."""
        suspect = self._suspects.get(name)
        if suspect is None:
            suspect = self._suspects[name] = Suspect(name, now_ms, error)
        elif suspect.is_answering:
            suspect.since_ms = now_ms
        suspect.error, suspect.is_answering = error, False
        suspect.failures += 1

    def answered(self, name: str) -> None:
        """Note an answer; the queue keeps a separate connection until `cleared`."""
        suspect = self._suspects.get(name)
        if suspect is not None:
            suspect.is_answering = True

    def cleared(self, name: str) -> None:
        """Remove a suspect: the queue is asked like all others again."""
        self._suspects.pop(name, None)

    def is_answering(self, name: str) -> bool:
        """Whether a queue has answered since it failed last."""
        suspect = self._suspects.get(name)
        return suspect is None or suspect.is_answering

    def pause_s(self, name: str) -> float:
        """Return the pause before a queue is asked again."""
        suspect = self._suspects.get(name)
        if suspect is None:
            return 0.0
        doublings = min(max(suspect.failures - 1, 0), 16)
        return min(PAUSE_MIN_S * float(1 << doublings), PAUSE_MAX_S)

    @property
    def silent(self) -> list[Suspect]:
        """The suspects without an answer since the last failure."""
        return [each for each in self._suspects.values() if not each.is_answering]


def is_silence(text: str) -> bool:
    """Whether RabbitMQ's words for a closed channel say that a queue's process is not there.

    Cases: a stream without its writer, a queue whose only node is down, a queue whose
    process keeps crashing.
    """
    return any(words in text for words in _SILENCES)


def named_in(text: str, names: Iterable[str]) -> set[str]:
    """Return the names that RabbitMQ's words blame; all names if the words blame none.

    4.3 names the queue, earlier versions only for a get. A queue of an entity begins with the
    entity's name: `orders`, `orders/$inbox`.
    """
    names = set(names)
    blamed = {name for name in names if f"'{name}'" in text or f"'{name}/$" in text}
    return blamed or names
