"""Queues that RabbitMQ gave no answer for: since when, and how long to wait before they are asked.

A queue whose Raft server is stopped, or has no leader, ends each connection on which it is asked.
So whatever was asked and unanswered when a connection ended so is a suspect: asked again on a
connection of its own, with growing pauses, until it answers and has nothing under way there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 10.0
"""Between two attempts; a queue that is back is found within the longest."""

_SILENCES = (
    "does not have a replica on the local node",
    "is down or inaccessible",
    "process is stopped by supervisor",
)


@dataclass(slots=True)
class Suspect:
    """One of them.

    Attributes:
        name: the queue, or the entity whose queues these are.
        since_ms: when it first failed (UTC ms).
        error: RabbitMQ's words, the last time.
        failures: how often it has failed.
        is_answering: it has answered since it failed last.
    """

    name: str
    since_ms: int
    error: str
    failures: int = 0
    is_answering: bool = False

    @property
    def sentence(self) -> str:
        """Who gives no answer, since when, and why that is thought."""
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
        """It gave no answer, or may have given none."""
        suspect = self._suspects.get(name)
        if suspect is None:
            suspect = self._suspects[name] = Suspect(name, now_ms, error)
        elif suspect.is_answering:
            suspect.since_ms = now_ms
        suspect.error, suspect.is_answering = error, False
        suspect.failures += 1

    def answered(self, name: str) -> None:
        """It has answered; where it is asked stays as it is until it is `cleared`."""
        suspect = self._suspects.get(name)
        if suspect is not None:
            suspect.is_answering = True

    def cleared(self, name: str) -> None:
        """It may be asked like all others again."""
        self._suspects.pop(name, None)

    def is_answering(self, name: str) -> bool:
        """Whether it has answered since it failed last."""
        suspect = self._suspects.get(name)
        return suspect is None or suspect.is_answering

    def pause_s(self, name: str) -> float:
        """Return how long to wait before it is asked again."""
        suspect = self._suspects.get(name)
        if suspect is None:
            return 0.0
        doublings = min(max(suspect.failures - 1, 0), 16)
        return min(PAUSE_MIN_S * float(1 << doublings), PAUSE_MAX_S)

    @property
    def silent(self) -> list[Suspect]:
        """Those that have not answered since they failed."""
        return [each for each in self._suspects.values() if not each.is_answering]


def is_silence(text: str) -> bool:
    """Whether RabbitMQ's words for a closed channel say that a queue's process is not there.

    A stream without its writer (3.10), a queue whose only node is down, one that keeps crashing.
    """
    return any(words in text for words in _SILENCES)


def named_in(text: str, names: Iterable[str]) -> set[str]:
    """Return whom RabbitMQ's words blame; all of them when they name none.

    4.3 names the queue, earlier versions only for a get. What belongs to an entity begins with the
    entity's name: `orders`, `orders/$inbox`.
    """
    names = set(names)
    blamed = {name for name in names if f"'{name}'" in text or f"'{name}/$" in text}
    return blamed or names
