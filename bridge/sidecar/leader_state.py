"""What outlasts one term of an entity's sequencer in this process.

When a term ends because RabbitMQ failed, the process still knows what it had numbered and not seen
confirmed. If nobody else was the sequencer in between, the next term goes on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bridge.broker.errors import BrokerError
from bridge.engine.poison import Poison
from bridge.machine.publication import Publication
from bridge.machine.sequencer import Answer, Sequencer
from bridge.model.entity import SendEntity, Tier
from bridge.sidecar.arrival_buffer import PREFETCH_MAX
from bridge.sidecar.meters import Meters
from bridge.wire.envelope import Item


class TermOver(BrokerError):
    """The term ends without a fault, so that the next one goes on in another way."""


def _nothing(entity: str) -> None:
    pass


async def _nothing_left(entity: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Companion:
    """What else a leader does for its entity.

    Attributes:
        begin: called with the entity's name when a term has begun.
        end: called before it ends; the term lasts until that is done.
    """

    begin: Callable[[str], None] = _nothing
    end: Callable[[str], Awaitable[None]] = _nothing_left


@dataclass(slots=True)
class Unconfirmed:
    """Publications that belong together, on their way to RabbitMQ.

    Attributes:
        first_entry: the sequencer's count of entries before them.
        publications: what was published.
        answer: what to tell when they are confirmed.
        native: the native message that they store, if it is one: it has no identity.
    """

    first_entry: int
    publications: Sequence[Publication]
    answer: Answer | None
    native: Item | None


@dataclass(slots=True)
class LeaderState:
    """The sequencer's place for one entity.

    Attributes:
        entity: its definition.
        tier: the namespace's tier.
        sequencer: that of the last term here, or `None`.
        term: the last term here that was leading.
        attempts: the terms here since then.
        unconfirmed: what that term had published and not seen confirmed, in order.
        returning: native messages that were confirmed when they were published again: their
            arrivals are not acked yet and come once more.
        prefetch: how many arrivals the next term may have unacked.
        meters: the entity's counters.
        leaderless_ms: since when, as far as is known here, nobody has numbered (UTC ms); `None`
            while somebody does, here or in another process.
        poison: what could not be handled is noted there.
        companion: what else a term does.
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

    def note_leaderless(self, now_ms: int) -> None:
        """Nobody is known to number from now on, if somebody was."""
        if self.leaderless_ms is None:
            self.leaderless_ms = now_ms

    def begin(self, sequencer: Sequencer, term: bytes, unconfirmed: dict[int, Unconfirmed]) -> None:
        """Remember who is leading now, and the collection of what it has unconfirmed."""
        self.sequencer, self.term, self.unconfirmed = sequencer, term, unconfirmed
        self.attempts.clear()

    def is_successor(self, terms: Sequence[bytes]) -> bool:
        """Whether nobody else was the sequencer since the last term here.

        Args:
            terms: those that the journal's tail names, in order, without `attempts`.
        """
        return self.sequencer is not None and bool(terms) and terms[-1] == self.term
