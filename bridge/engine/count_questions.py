"""What bridges tell each other of entities' messages: counts, last uses, scheduled numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.broker.errors import Unroutable
from bridge.engine.peers import Peers, Question
from bridge.wire.basic import Table, long, text
from bridge.wire.reply import encode_done
from bridge.wire.sessions import integer, string

COUNT = "count"
WAITING = "waiting"

NUMBERS_MAX = 5_000
"""Scheduled numbers of one answer."""

NOT_LED = -1
"""What a bridge tells of the scheduled messages of an entity that it does not lead."""

HELD = 3
"""The numbers of an entity in `Counting.held`."""

OfEntities = Callable[[Sequence[str]], list[int]]
"""Returns the numbers of entities, as many of each."""

WaitingHere = Callable[[str, int, int], list[int] | None]
"""Returns the numbers of an entity's scheduled messages, from a number on, up to a count; `None`:
this process does not lead the entity."""


@dataclass(frozen=True, slots=True)
class CountsAnswer:
    """What a bridge tells of entities; parts are empty where an earlier version does not tell.

    Attributes:
        held, scheduled: as `Counting.held` and `Counting.scheduled` return them there.
        accessed: as `Usage.accessed_ms` returns it there.
    """

    held: Sequence[int] = ()
    scheduled: Sequence[int] = ()
    accessed: Sequence[int] = ()


class CountQuestions:
    """Asks other bridges about the messages of entities, and answers them.

    Args:
        held, scheduled, accessed: return what is told of entities here (see `CountsAnswer`).
        waiting_here: returns the numbers of scheduled messages of an entity that is led here.
    """

    def __init__(
        self,
        peers: Peers,
        held: OfEntities,
        scheduled: OfEntities,
        accessed: OfEntities,
        waiting_here: WaitingHere,
    ) -> None:
        self._peers = peers
        self._held = held
        self._scheduled = scheduled
        self._accessed = accessed
        self._waiting_here = waiting_here
        peers.answer(COUNT, self._counted)
        peers.answer(WAITING, self._waiting)

    async def counts(self, bridge: bytes, paths: Sequence[str]) -> CountsAnswer:
        """Return what a bridge tells of entities; of a gone bridge, nothing."""
        asked = {"path": text("\n".join(paths)), "scheduled": ("t", True), "accessed": ("t", True)}
        numbers = await numbers_of(self._peers, bridge, {"do": text(COUNT), **asked})
        count = len(paths)
        held, led = HELD * count, (HELD + 1) * count
        return CountsAnswer(numbers[:held], numbers[held:led], numbers[led:])

    async def waiting(self, bridge: bytes, path: str, start: int, count: int) -> list[int]:
        """Return the numbers of an entity's scheduled messages; `NOT_LED` alone: another leads it.

        A bridge that is gone leads nothing. One of an earlier version that does not lead the entity
        tells none.
        """
        asked = {"path": text(path), "start": long(start), "count": long(count)}
        question = {"do": text(WAITING), **asked, "tells_unled": ("t", True)}
        try:
            return list((await self._peers.ask(bridge, question)).numbers)
        except Unroutable:
            return [NOT_LED]

    async def _counted(self, question: Question) -> bytes:
        paths = string(question.table, "path").split("\n")
        scheduled = self._scheduled(paths) if "scheduled" in question.table else []
        accessed = self._accessed(paths) if "accessed" in question.table else []
        return encode_done([*self._held(paths), *scheduled, *accessed])

    async def _waiting(self, question: Question) -> bytes:
        start, count = (integer(question.table, name) for name in ("start", "count"))
        path = string(question.table, "path")
        found = self._waiting_here(path, start, min(count, NUMBERS_MAX))
        if found is None and "tells_unled" in question.table:
            return encode_done((NOT_LED,))
        return encode_done(found or ())


async def numbers_of(peers: Peers, bridge: bytes, question: Table) -> list[int]:
    """Ask a bridge for numbers; of a gone bridge, there are none.

    Raises:
        ServiceBusError, BrokerError: there is no answer.
    """
    try:
        return list((await peers.ask(bridge, question)).numbers)
    except Unroutable:
        return []
