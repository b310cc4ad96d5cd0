"""Reports to the leaders of temporary entities that clients of this bridge use the entities.

A leader sees sends itself; reports are about receivers, settlement, renewal and peeks. An open
receiver is use as long as it is open. `machine.use_reports` decides when to report. A report is
published to the entity's inbox, so the present or the next leader gets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence

from bridge.broker import failpoint
from bridge.broker.errors import BrokerError
from bridge.engine.clock import now_ms
from bridge.engine.ownership.services import Services
from bridge.machine.idleness import key_of, watched
from bridge.machine.use_reports import UseReports
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.topology.entity_table import Changes
from bridge.wire import envelope

TICK_S = 1.0
"""The time between two notes of open receivers, and between attempts of a failed report."""

_RANDOM_BYTES = envelope.IDENTITY_BYTES - 6

log = logging.getLogger(__name__)


class Usage:
    """Notes uses, reports them to leaders, and answers other bridges about them.

    Args:
        open_paths: returns the entities that have open receivers (lower case).
        clock: the time (UTC ms).
    """

    def __init__(
        self,
        services: Services,
        open_paths: Callable[[], Iterable[str]],
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._sender = services.sender
        self._locks = services.locks
        self._open_paths = open_paths
        self._clock = clock
        self._watched: dict[str, tuple[bytes, str]] = {}
        self._were_open: set[str] = set()
        self._of_front: dict[str, list[str]] = {}
        self._reports: dict[str, UseReports] = {}
        self._noted: set[str] = set()
        self._wake = asyncio.Event()

    def follow(self, changes: Changes) -> None:
        """Take over which entities are temporary from changed definitions."""
        fronts = dict(changes.fronts)
        for path in changes.before:
            if (gone := self._of_front.pop(path, None)) is not None and path not in fronts:
                del self._reports[path]
            for each in gone or ():
                del self._watched[each]
        for front, entity in fronts.items():
            there = {each.path.lower(): (key_of(each), front) for each in watched(entity)}
            if not there:
                self._reports.pop(front, None)
                continue
            self._watched |= there
            self._of_front[front] = list(there)
            self._reports.setdefault(front, UseReports()).keep({key for key, _ in there.values()})
            self._wake.set()

    def note(self, path: EntityPath) -> None:
        """Note that a client uses an entity, or its dead-letter sub-queue."""
        if self._watched:
            self._note(path.key)

    def answer(self, paths: Sequence[str], find: Callable[[str], model.Entity | None]) -> list[int]:
        """Return two numbers for each entity, for another bridge.

        The first is the time since clients of this bridge used the entity (ms; -1: never). The
        second is 1 when this bridge refuses the entity: `find` returns none, or one being deleted.
        """
        self._note_open()
        pairs = ((self._age_ms(path), int(_is_refused(find(path)))) for path in paths)
        return [number for pair in pairs for number in pair]

    async def run(self) -> None:
        """Report uses until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._watched:
                self._note_open()
                await self._tell_due()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._wake.wait()
                self._wake.clear()

    def _age_ms(self, path: str) -> int:
        found = self._watched.get(path.lower())
        age_ms = self._reports[found[1]].age_ms(found[0], self._clock()) if found else None
        return -1 if age_ms is None else age_ms

    def _note(self, path: str) -> None:
        found = self._watched.get(path)
        if found is None:
            return
        key, front = found
        now_ms = self._clock()
        reports = self._reports[front]
        reports.note(key, now_ms)
        self._noted.add(front)
        if reports.is_due(now_ms):
            self._wake.set()

    def _note_open(self) -> None:
        """Note uses by open receivers, and by those that were closed since the last call."""
        open_paths = self._watched.keys() & set(self._open_paths())
        for path in open_paths | self._were_open:
            self._note(path)
        self._were_open = open_paths

    async def _tell_due(self) -> None:
        now_ms = self._clock()
        for front in list(self._noted):
            reports = self._reports.get(front)
            if reports is None or not reports.is_open:
                self._noted.discard(front)
            elif reports.is_due(now_ms):
                await self._tell(front, reports)

    async def _tell(self, front: str, reports: UseReports) -> None:
        used = reports.take(self._clock())
        identity = self._locks.instance + os.urandom(_RANDOM_BYTES)
        body = envelope.encode_used(identity, used)
        try:
            await self._sender.publish("", names.inbox(front), envelope.SILENT_PROPERTIES, body)
            failpoint.reach("usage.told")
        except (ServiceBusError, BrokerError) as error:
            reports.not_told(key for key, _ in used)
            log.info("usage.untold entity=%s error=%s", front, error)


def _is_refused(entity: model.Entity | None) -> bool:
    return entity is None or entity.status is model.EntityStatus.DELETING
