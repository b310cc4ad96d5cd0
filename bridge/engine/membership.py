"""The live bridges, and what each consumes: what a bridge tells the others, and hears from them.

    here      a notification to all (`Notifications`): this process has this queue now, and knows
              these features
    standbys  a question to each known bridge, once a second: the inboxes that were begun or given
              up since the last one; all of them to a new bridge, and after each `here`

A bridge's own queue is exclusive to its connection, so the question to a bridge that is gone comes
back unroutable: its death is known within a second, without a listing. A bridge that is slow has
its queue, and RabbitMQ's consumers, and counts as live. An older bridge tells nothing: it consumes
every inbox, and is not counted.

What a leader of an older version would do wrongly is asked of nobody while there is one: bridges
tell the names of the features that they know. One that tells none knows none; bridges that tell
nothing at all are found by a list of all, every `HERE_S`. Before the first list is there no feature
is known, and a bridge of this list counts as one that tells nothing until it has told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from bridge.background.tasks import Tasks
from bridge.broker.errors import BrokerError, PublishRefused, Unroutable
from bridge.engine.administration.notifications import Notifications
from bridge.engine.peers import Peers, Question
from bridge.engine.settlement.locktable import ProcessLocks
from bridge.machine.inbox.standbys import DIGEST_BYTES, StandbyNotice, Standbys
from bridge.model.errors import ServiceBusError
from bridge.wire import commits
from bridge.wire.basic import Table, text
from bridge.wire.link_properties import IMPORT, RELAY_SOURCE, RELAY_SUBSCRIPTION
from bridge.wire.own_operations import (
    HOLD,
    IMPORT_SESSION_STATE,
    LAST_NUMBERS,
    MOVE_SCHEDULED_MESSAGES,
)
from bridge.wire.reply import encode_done
from bridge.wire.sessions import PING, content

BEAT_S = 1.0
"""Time between two questions to each other bridge."""

CHANGES_S = 0.2
"""Time between two questions while there are changes to tell."""

HERE_S = 10.0
"""Time between two notifications, for bridges that missed one. All is told anew then: while this
bridge had no queue, the others may have forgotten it, and all that it had told."""

STANDBYS = "standbys"
"""The name of a question without an answer: which inboxes a bridge consumes."""

LISTED_AGAIN_S = 1.0
"""Time between two attempts to get the first list of all bridges."""

RETURN_S = 5.0
"""Time after a new connection within which no other bridge counts as gone: RabbitMQ has failed,
perhaps, and the others connect again, too, each with a queue of a new name."""

FEATURES = frozenset(
    {
        str(RELAY_SOURCE),
        str(RELAY_SUBSCRIPTION),
        str(IMPORT),
        HOLD,
        MOVE_SCHEDULED_MESSAGES,
        commits.FEATURE,
        IMPORT_SESSION_STATE,
        LAST_NUMBERS,
    }
)
"""What this version knows, and a leader of an older one does not: link properties and operations of
`$management`, by their names, and transactions."""

log = logging.getLogger(__name__)


def _nothing() -> None:
    pass


class Membership:
    """This bridge among the others.

    Args:
        standbys: what is known of the others; they are told what it says of this bridge.
        running: lists the queues of all other running bridges, of any version.

    Attributes:
        on_changed: called when `standbys` has heard something new.
        is_listed: this bridge has once listed all others.
    """

    def __init__(
        self,
        standbys: Standbys,
        peers: Peers,
        notifications: Notifications,
        locks: ProcessLocks,
        running: Callable[[], Awaitable[Collection[bytes]]],
    ) -> None:
        self.standbys = standbys
        self.on_changed: Callable[[], None] = _nothing
        self._peers = peers
        self._notifications = notifications
        self._locks = locks
        self._queues: dict[bytes, bytes] = {}
        self._running = running
        self._tasks = Tasks()
        self._listing: asyncio.Task[None] | None = None
        self.is_listed = False
        self._features: dict[bytes, frozenset[str]] = {}
        self._silent: set[bytes] = set()
        self._unheard: set[bytes] = set()
        self._here_s = float("-inf")
        self._judges_from_s = float("-inf")
        self._wake = asyncio.Event()
        peers.answer(STANDBYS, self._on_question)
        notifications.on_here = self._met

    def __repr__(self) -> str:
        return f"Membership({len(self._queues)} other bridges)"

    def knows(self, feature: str) -> bool:
        """Whether all bridges of the virtual host know a feature (`FEATURES`), as far as is known.

        Not before this bridge has listed all others, and each of these has told, or is gone.
        """
        told = self._features
        silent = self._silent.difference(self._queues.values())
        is_told = self.is_listed and not silent
        return is_told and all(feature in told.get(each, ()) for each in self._queues)

    @property
    def heard(self) -> Collection[bytes] | None:
        """The queues of the other bridges that have told, or were listed last; `None` before that.

        One that has begun since then may be missing, and one that is gone among them.
        """
        return {*self._queues.values(), *self._unheard} if self.is_listed else None

    def wake(self) -> None:
        """Tell the others soon what has changed."""
        self._wake.set()

    def listened(self) -> None:
        """Note that this bridge has a new connection, and a queue with a new name."""
        now_s = asyncio.get_running_loop().time()
        self._here_s = float("-inf")
        self._judges_from_s = now_s + RETURN_S
        self._wake.set()

    async def run(self) -> None:
        """Tell the other bridges, and notice which are gone, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            if loop.time() - self._here_s >= HERE_S and self._notifications.tell_here(
                self.standbys.own, " ".join(sorted(FEATURES))
            ):
                self._here_s = loop.time()
                self._look()
                for bridge in self._queues:
                    self.standbys.not_told(bridge)
            for bridge in list(self._queues):
                self._tell(bridge)
            await asyncio.sleep(CHANGES_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S - CHANGES_S):
                    await self._wake.wait()

    def _look(self) -> None:
        """Begin to list all bridges, unless that is under way."""
        if self._listing is None or self._listing.done():
            listing = self._look_for_silent()
            self._listing = self._tasks.start(listing, "bridges of earlier versions")

    async def _look_for_silent(self) -> None:
        """Find bridges that tell nothing; one that has just begun tells by the next look.

        A dead node's bridge may be in the list, and its queue takes nothing. At the first look the
        others were there before this bridge, so each counts as silent at once: it is told by
        `here` that this bridge is new, and tells.
        """
        while True:
            try:
                there = set(await self._running()) - set(self._queues.values())
                break
            except BrokerError as error:
                log.info("bridge.unlisted error=%s", error)
                if self.is_listed:
                    return
                await asyncio.sleep(LISTED_AGAIN_S)
        before, self._unheard = self._unheard, there
        self._silent &= there
        if not self.is_listed:
            self.is_listed, before = True, there
            self._silent |= there
        for queue in there & before:
            with contextlib.suppress(ServiceBusError, BrokerError):
                self._peers.post(queue, {"do": text(PING)}, partial(self._pinged, queue))

    def _pinged(self, queue: bytes, error: BrokerError | None) -> None:
        if error is None and queue in self._unheard:
            self._silent.add(queue)
        else:
            self._silent.discard(queue)

    def _tell(self, bridge: bytes) -> None:
        queue = self._queues[bridge]
        told = self.standbys.untold(bridge) or StandbyNotice(False, ())
        question: Table = {
            "do": text(STANDBYS),
            "bridge": ("x", self.standbys.own),
            "queue": ("x", self._locks.instance),
            "all": ("t", told.is_whole),
            "features": text(" ".join(sorted(FEATURES))),
            "consumed": ("x", b"".join(told.consumed)),
            "stopped": ("x", b"".join(told.stopped)),
        }
        try:
            self._peers.post(queue, question, partial(self._told, bridge, queue))
        except (ServiceBusError, BrokerError):  # an alarm, or no connection
            self.standbys.not_told(bridge)

    def _told(self, bridge: bytes, queue: bytes, error: BrokerError | None) -> None:
        """Take the outcome of a question; a queue of a dead node refuses it."""
        if error is None or self._queues.get(bridge) != queue:
            return
        self.standbys.not_told(bridge)
        is_gone = isinstance(error, Unroutable | PublishRefused)
        if is_gone and asyncio.get_running_loop().time() >= self._judges_from_s:
            log.info("bridge.gone name=%s", bridge.hex())
            del self._queues[bridge]
            self._features.pop(bridge, None)
            self.standbys.forget(bridge)
            self.on_changed()

    async def _on_question(self, question: Question) -> bytes:
        bridge, queue, consumed, stopped = (
            content(question.table, name) for name in ("bridge", "queue", "consumed", "stopped")
        )
        features = question.table.get("features", text(""))[1]
        self._met(bridge, queue, features.decode() if isinstance(features, bytes) else "")
        told = StandbyNotice(bool(question.table["all"][1]), _digests(consumed), _digests(stopped))
        if told.is_whole or told.consumed or told.stopped:
            self.standbys.hear(bridge, told)
            self.on_changed()
        return encode_done(())

    def _met(self, bridge: bytes, queue: bytes, features: str) -> None:
        """Note a bridge, its queue and features; with a new queue it may have missed messages."""
        if bridge != self.standbys.own:
            self._features[bridge] = frozenset(features.split())
        if bridge == self.standbys.own or self._queues.get(bridge) == queue:
            return
        log.info("bridge.here name=%s queue=%s", bridge.hex(), queue.hex())
        self._queues[bridge] = queue
        self.standbys.meet(bridge)
        self.standbys.not_told(bridge)
        self.on_changed()
        self._wake.set()


def _digests(raw: bytes) -> tuple[bytes, ...]:
    return tuple(raw[at : at + DIGEST_BYTES] for at in range(0, len(raw), DIGEST_BYTES))
