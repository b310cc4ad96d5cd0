"""Reports to the leaders of entities that clients of this bridge use the entities.

A leader sees sends itself; reports are about receivers, settlement, renewal, peeks and schedules.
An open receiver is use as long as it is open. `machine.usage.use_reports` decides when to report. A
report is published to the entity's inbox, so the present or the next leader gets it.

Settlements and renewals are noted for temporary entities alone: they cost each message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from bridge.broker import failpoint
from bridge.broker.errors import BrokerError
from bridge.engine.clock import now_ms
from bridge.engine.count_questions import numbers_of
from bridge.engine.peers import Peers, Question
from bridge.engine.services import Services
from bridge.machine.usage.idleness import key_of, watched, with_below
from bridge.machine.usage.use_reports import ACCESS_REPORT_MS, REPORT_MS, UseReports
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.topology.entity_table import Changes
from bridge.wire import envelope
from bridge.wire.basic import text
from bridge.wire.reply import encode_done
from bridge.wire.sessions import string

TICK_S = 1.0
"""The time between two notes of open receivers, and between attempts of a failed report."""

ACCESS_LOOK_S = 60.0
"""The time between two notes of open receivers of entities that are not temporary."""

ACCESSES_TOLD = 20
"""Reports about entities that are not temporary, in one `TICK_S`: others are not held up."""

_RANDOM_BYTES = envelope.IDENTITY_BYTES - 6

NOT_LED = -1
"""In place of a time: this process does not lead the entity."""

USED = "used"
"""The name of a question about ages."""

LedMs = Callable[[str, bytes], int]

OpenPaths = Callable[[], Iterable[str]]
"""Returns the entities that have open receivers (lower case)."""

Find = Callable[[str], model.Entity | None]

log = logging.getLogger(__name__)


class Usage:
    """Notes uses, reports them to leaders, and answers other bridges about them.

    Args:
        clock: the time (UTC ms).
        led_ms: returns when an entity was used last, as far as its leader here knows (UTC ms; 0:
            never; -1: it is not led here), given the path of its queue or topic, and its own key.
    """

    def __init__(
        self,
        services: Services,
        clock: Callable[[], int] = now_ms,
        led_ms: LedMs = lambda front, key: NOT_LED,
    ) -> None:
        self._sender = services.sender
        self._locks = services.locks
        self._open_paths: OpenPaths = tuple
        self._clock = clock
        self._led_ms = led_ms
        self._known: dict[str, tuple[bytes, str]] = {}
        self._watched: set[str] = set()
        self._were_open: set[str] = set()
        self._of_front: dict[str, list[str]] = {}
        self._temporary: set[str] = set()
        self._reports: dict[str, UseReports] = {}
        self._noted: set[str] = set()
        self._accessed: dict[str, None] = {}
        self._looked_s = float("-inf")
        self._wake = asyncio.Event()

    def follow(self, changes: Changes) -> None:
        """Take over changed definitions: which entities there are, and which are temporary."""
        fronts = dict(changes.fronts)
        for path in changes.before:
            for each in self._of_front.pop(path, ()):
                del self._known[each]
                self._watched.discard(each)
            if path not in fronts:
                self._reports.pop(path, None)
                self._temporary.discard(path)
        for front, entity in fronts.items():
            there = {each.path.lower(): (key_of(each), front) for each in with_below(entity)}
            self._known |= there
            self._of_front[front] = list(there)
            temporary = {each.path.lower() for each in watched(entity)}
            self._watched |= temporary
            self._temporary.discard(front)
            if temporary:
                self._temporary.add(front)
            if (reports := self._reports.get(front)) is not None:
                reports.interval_ms = REPORT_MS if temporary else ACCESS_REPORT_MS
                reports.keep({key for key, _ in there.values()})
        if self._known:
            self._wake.set()

    def note(self, path: EntityPath) -> None:
        """Note that a client uses an entity, or its dead-letter sub-queue, if it is temporary."""
        if self._watched and path.key in self._watched:
            self._note(path.key)

    def note_access(self, path: EntityPath) -> None:
        """Note that a client uses an entity, or its dead-letter sub-queue."""
        self._note(path.key)

    def accessed_ms(self, paths: Sequence[str]) -> list[int]:
        """Return two times for each entity: when it was used last (UTC ms; 0: never).

        The first is that of this bridge's clients, the second that of all that its leader knows, or
        `NOT_LED`.
        """
        open_paths, now_ms = set(self._open_paths()), self._clock()
        found = []
        for path in paths:
            key, front = self._known.get(path.lower(), (b"", ""))
            reports = self._reports.get(front)
            own_ms = 0 if reports is None else reports.used_ms(key)
            is_open = path.lower() in open_paths
            found += [now_ms if is_open else own_ms, self._led_ms(front, key)]
        return found

    def watch(self, open_paths: OpenPaths) -> None:
        """Count open receivers as use, from now on."""
        self._open_paths = open_paths

    def answer(self, peers: Peers, find: Find) -> None:
        """Have other bridges' questions about ages answered; `find` returns a known entity."""
        peers.answer(USED, partial(self._answer, find))

    async def _answer(self, find: Find, question: Question) -> bytes:
        return encode_done(self.ages(string(question.table, "path").split("\n"), find))

    def ages(self, paths: Sequence[str], find: Find) -> list[int]:
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
            while self._known:
                self._note_open()
                await self._tell_due()
                await self._tell_accesses()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._wake.wait()
                self._wake.clear()

    def _age_ms(self, path: str) -> int:
        key, front = self._known.get(path.lower(), (b"", ""))
        reports = self._reports.get(front)
        age_ms = reports.age_ms(key, self._clock()) if reports is not None else None
        return -1 if age_ms is None else age_ms

    def _note(self, path: str) -> None:
        found = self._known.get(path)
        if found is None:
            return
        key, front = found
        now_ms = self._clock()
        reports = self._reports.get(front)
        is_temporary = front in self._temporary
        if reports is None:
            reports = UseReports() if is_temporary else UseReports(ACCESS_REPORT_MS, now_ms)
            self._reports[front] = reports
        reports.note(key, now_ms)
        if not is_temporary:
            self._accessed[front] = None
            return
        self._noted.add(front)
        if reports.is_due(now_ms):
            self._wake.set()

    def _note_open(self) -> None:
        """Note uses by open receivers, and by those that were closed since the last call."""
        all_open = set(self._open_paths())
        open_paths = self._watched & all_open
        for path in open_paths | self._were_open:
            self._note(path)
        self._were_open = open_paths
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s >= ACCESS_LOOK_S:
            self._looked_s = now_s
            for path in all_open - open_paths:
                self._note(path)

    async def _tell_due(self) -> None:
        now_ms = self._clock()
        for front in list(self._noted):
            reports = self._reports.get(front)
            if reports is None or not reports.is_open:
                self._noted.discard(front)
            elif reports.is_due(now_ms):
                await self._tell(front, reports)

    async def _tell_accesses(self) -> None:
        """Report some uses of entities that are not temporary, the oldest first."""
        now_ms, told = self._clock(), 0
        for front in list(self._accessed):
            reports = self._reports.get(front)
            if reports is None or not reports.is_open or front in self._temporary:
                del self._accessed[front]
            elif reports.is_due(now_ms):
                del self._accessed[front]
                told += 1
                if not await self._tell(front, reports) or told == ACCESSES_TOLD:
                    return

    async def _tell(self, front: str, reports: UseReports) -> bool:
        """Report the uses of a queue or topic, or try again later; return whether it is done."""
        used = reports.take(self._clock())
        identity = self._locks.instance + os.urandom(_RANDOM_BYTES)
        body = envelope.encode_used(identity, used)
        try:
            await self._sender.publish("", names.inbox(front), envelope.SILENT_PROPERTIES, body)
            failpoint.reach("usage.told")
        except (ServiceBusError, BrokerError) as error:
            reports.not_told(key for key, _ in used)
            self._accessed[front] = None
            log.info("usage.untold entity=%s error=%s", front, error)
            return False
        return True


def _is_refused(entity: model.Entity | None) -> bool:
    return entity is None or entity.status is model.EntityStatus.DELETING


async def ask_ages(peers: Peers, bridge: bytes, paths: Sequence[str]) -> list[int]:
    """Return when a bridge's clients used entities last, as `Usage.ages`; of a gone one, nothing.

    Raises:
        ServiceBusError, BrokerError: there is no answer.
    """
    question = {"do": text(USED), "path": text("\n".join(paths))}
    return await numbers_of(peers, bridge, question)
