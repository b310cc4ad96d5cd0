"""The state of an entity's leadership that outlasts one term in this process.

When a term ends because RabbitMQ failed, the process still has the numbered messages that were not
confirmed. If no other process was the leader in between, the next term goes on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bridge.background.waits import Waits
from bridge.broker.errors import BrokerError
from bridge.engine.poison import Poison
from bridge.machine.inbox.applied import SenderAnswer
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.model.entity import SendEntity, Tier
from bridge.sidecar.leader.arrival_buffer import PREFETCH_MAX
from bridge.sidecar.leader.meters import Meters
from bridge.wire.envelope import Item

LOOKED_MS = 30_000
"""The routes of an entity are looked at more often than this, by the process that leads it."""


class TermOver(BrokerError):
    """The term ends without a fault; the next one goes on with other settings."""


def _nothing(entity: str) -> None:
    pass


async def _nothing_left(entity: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Companion:
    """Additional work for an entity while this process leads it.

    Attributes:
        begin: called with the entity's name when a term has begun.
        end: called with the entity's name before the term ends; the term's end waits for it.
        transfers: called with the entity's name when the term knows that it has a transfer queue.
    """

    begin: Callable[[str], None] = _nothing
    end: Callable[[str], Awaitable[None]] = _nothing_left
    transfers: Callable[[str], None] = _nothing


@dataclass(slots=True)
class Unconfirmed:
    """The publications of one submission, which are not confirmed yet.

    Attributes:
        first_entry: the sequencer's count of journal entries before them.
        publications: the published messages.
        answer: the answer to send when they are confirmed.
        native: the native message (without an identity) that they store, if any.
    """

    first_entry: int
    publications: Sequence[Publication]
    answer: SenderAnswer | None
    native: Item | None


@dataclass(slots=True)
class LeaderState:
    """One entity's state across the terms of this process.

    Attributes:
        entity: the entity's definition.
        tier: the namespace's tier.
        sequencer: the sequencer of this process's last leading term, or None.
        term: the id of this process's last leading term.
        attempts: the ids of this process's later terms, which have not led.
        unconfirmed: the unconfirmed submissions of `term`, in order.
        returning: native messages that were confirmed when they were published again: their
            arrivals are not acked yet and come once more.
        prefetch: how many arrivals the next term may have unacked.
        meters: the entity's counters.
        leaderless_ms: since when no leader of the entity is known (UTC ms); None while this or
            another process leads.
        poison: takes note of input that could not be handled.
        companion: additional work of a term.
        waits: takes note of what waits, for health.
        routed: for each subscription (short id), the number up to which all copies have surely
            reached its queue, as the last look at the bindings has shown.
        unlooked: the subscriptions that this process has not looked at since it has led: they have
            surely what was numbered before `routed_ms`.
        queued: the same, as far as the last look at the queues alone has shown.
        routed_ms: when a look last found the routes of a queue (UTC ms); of a topic, the looks of
            this process's predecessor.
        again_since_ms: the next term publishes again what the journal has since then.
    """

    entity: SendEntity
    tier: Tier
    sequencer: Sequencer | None = None
    term: bytes | None = None
    attempts: set[bytes] = field(default_factory=set)
    unconfirmed: dict[int, Unconfirmed] = field(default_factory=dict)
    returning: Counter[tuple[bytes, bytes]] = field(default_factory=Counter)
    prefetch: int = PREFETCH_MAX
    meters: Meters = field(default_factory=Meters)
    leaderless_ms: int | None = None
    poison: Poison = field(default_factory=Poison)
    companion: Companion = field(default_factory=Companion)
    waits: Waits = field(default_factory=Waits)
    routed: dict[bytes, int] = field(default_factory=dict)
    unlooked: set[bytes] = field(default_factory=set)
    queued: dict[bytes, int] = field(default_factory=dict)
    routed_ms: int = 0
    again_since_ms: int | None = None

    def note_leaderless(self, now_ms: int) -> None:
        """Note that no leader is known from now on, unless that is noted already."""
        if self.leaderless_ms is None:
            self.leaderless_ms = now_ms

    def begin(self, sequencer: Sequencer, term: bytes, unconfirmed: dict[int, Unconfirmed]) -> None:
        """Note the leading term, its sequencer, and its collection of unconfirmed submissions."""
        self.sequencer, self.term, self.unconfirmed = sequencer, term, unconfirmed
        self.attempts.clear()

    def begin_routes(self, sequencer: Sequencer, now_ms: int) -> None:
        """Take the routes of a new sequencer for whole until its predecessor's last look.

        That was `LOOKED_MS` before the last message that the predecessor numbered, or later.
        """
        self.routed = {}
        self.unlooked = set(sequencer.memory.subscriptions)
        self.queued = dict(sequencer.memory.subscriptions)
        self.routed_ms = min(sequencer.memory.enqueued_ms or now_ms, now_ms) - LOOKED_MS

    def look(self, routed: dict[bytes, int]) -> None:
        """Note up to which numbers subscriptions have surely got their copies."""
        self.routed |= routed
        self.unlooked -= routed.keys()

    def is_successor(self, terms: Sequence[bytes]) -> bool:
        """Whether no other process has led since this process's last leading term.

        Args:
            terms: the ids of the terms in the journal's tail, in order, without `attempts`.
        """
        return self.sequencer is not None and bool(terms) and terms[-1] == self.term
