"""Which bridges consume an inbox: its leader and its standby, chosen by rendezvous hashing.

Every bridge ranks all live bridges for an inbox (`topology.shards`), so bridges that know the same
live bridges agree without asking. The first one leads, the second one stands by, and the
others do not consume the inbox. RabbitMQ's single active consumer alone decides who leads: a wrong
view costs a consumer too many, or a late election, and never a second leader.

    consumes    fewer than two bridges rank before it, or fewer than two of those are known to
                consume the inbox (after a while, when it is no first or second)
    stops       it stands by, and two bridges that rank before it have consumed for a while
    hands over  it leads, and a bridge that ranks before it has stood by for a while

So the first of the live bridges never stops, whatever the others believe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.topology import names
from bridge.topology.shards import preference

DIGEST_BYTES = 8
"""Length of the digest that stands for an entity between bridges."""

CONSUMERS = 2
"""Number of bridges that consume an inbox: the leader and one standby."""

LATE_S = 2.0
"""Time after which a bridge that is no first or second consumes an inbox, when these are not known
to do so: longer than a bridge takes to tell the others."""

STEADY_S = 5.0
"""Time for which others must have consumed an inbox before a bridge stops or hands over. A bridge
that comes and goes faster moves nothing."""

TERM_MIN_S = 10.0
"""Time for which a leader leads at least before it hands over in order."""

HAND_OVERS_A_S = 20.0
"""The most leaders that hand over in a second: each entity waits some 0.1 s meanwhile."""

FIT_AGAIN_S = 60.0
"""Time for which a bridge whose takeover failed is not known to stand by: nobody hands over to it.
"""


@dataclass(frozen=True, slots=True)
class Times:
    """The waits; see the constants."""

    late_s: float = LATE_S
    steady_s: float = STEADY_S
    term_min_s: float = TERM_MIN_S
    fit_again_s: float = FIT_AGAIN_S
    hand_overs_a_s: float = HAND_OVERS_A_S


class Rank(NamedTuple):
    """A bridge's place for one entity.

    Attributes:
        ahead: number of live bridges that rank before it.
        consuming: number of those that are known to consume the inbox.
        arrivals: the sum of their numbers of arrival: another one when one of them was replaced.
    """

    ahead: int
    consuming: int
    arrivals: int


class StandbyNotice(NamedTuple):
    """A bridge's message to another bridge about the inboxes that it consumes.

    Attributes:
        is_whole: `consumed` are all of them; otherwise those that came since it told last.
        consumed: their digests.
        stopped: the digests of those that it does not consume any more.
    """

    is_whole: bool
    consumed: tuple[bytes, ...]
    stopped: tuple[bytes, ...] = ()


class Decisions(NamedTuple):
    """What to do now: entities' keys.

    Attributes:
        join: consume these inboxes.
        stop: consume these no more; this bridge only stands by there.
        hand_over: end the leading terms of these in order.
        apart: what was looked at, and is not consumed by this bridge.
    """

    join: list[str]
    stop: list[str]
    hand_over: list[str]
    apart: list[str]


def digest(entity: str) -> bytes:
    """Return the digest of an entity, whose case does not matter."""
    return hashlib.blake2b(entity.lower().encode(), digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True)
class _Inbox:
    """One inbox, as this bridge has it."""

    name: str
    digest: bytes
    place: Rank
    since_s: float
    is_wanted: bool = False
    is_consumed: bool = False
    leads_since_s: float | None = None
    is_leaving: bool = False
    unfit_until_s: float = 0.0


@dataclass(slots=True)
class _Other:
    """Another live bridge; `arrival` is higher for each one that is met."""

    arrival: int
    consumed: set[bytes] = field(default_factory=set)
    untold: dict[bytes, bool] = field(default_factory=dict)
    is_told: bool = False


class Standbys:
    """What one bridge knows of the others, and which inboxes it consumes.

    Args:
        own: the bridge's name, of at most 64 bytes, new for each process.
        may_hand_over: whether the leader of an entity (its key) may hand over now.
    """

    def __init__(
        self,
        own: bytes,
        times: Times | None = None,
        may_hand_over: Callable[[str], bool] = lambda key: True,
    ) -> None:
        self.own = own
        self.may_hand_over = may_hand_over
        self._times = times or Times()
        self._others: dict[bytes, _Other] = {}
        self._arrivals = 0
        self._inboxes: dict[str, _Inbox] = {}
        self._keys: dict[bytes, str] = {}
        self._told: set[bytes] = set()
        self._changed: dict[str, None] = {}
        self._waiting: dict[str, None] = {}
        self._unfit: dict[str, None] = {}
        self._allowed = 1.0
        self._allowed_s = 0.0

    def __repr__(self) -> str:
        wanted = sum(each.is_wanted for each in self._inboxes.values())
        return f"Standbys({wanted} of {len(self._inboxes)}, {len(self._others)} other bridges)"

    @property
    def others(self) -> list[bytes]:
        """The other live bridges."""
        return list(self._others)

    @property
    def known(self) -> list[str]:
        """The keys of this bridge's entities."""
        return list(self._inboxes)

    @property
    def consumed(self) -> int:
        """Number of inboxes that this bridge consumes."""
        return sum(each.is_consumed for each in self._inboxes.values())

    @property
    def is_due(self) -> bool:
        """Whether `decide` has something to look at at once."""
        return bool(self._changed)

    @property
    def waits(self) -> bool:
        """Whether something changes with time alone."""
        return bool(self._waiting or self._unfit)

    @property
    def has_untold(self) -> bool:
        """Whether some bridge is to be told something."""
        return any(each.untold or not each.is_told for each in self._others.values())

    def meet(self, bridge: bytes) -> None:
        """Note a live bridge; it consumes nothing as far as is known, and is told everything."""
        if bridge != self.own and bridge not in self._others:
            self._arrivals += 1
            self._others[bridge] = _Other(self._arrivals)
            self._changed.update(dict.fromkeys(self._inboxes))

    def forget(self, bridge: bytes) -> None:
        """Note that a bridge is gone."""
        if self._others.pop(bridge, None) is not None:
            self._changed.update(dict.fromkeys(self._inboxes))

    def hear(self, bridge: bytes, told: StandbyNotice) -> None:
        """Note what a bridge tells of the inboxes that it consumes."""
        self.meet(bridge)
        other = self._others.get(bridge)
        if other is None:
            return
        before = other.consumed
        now = set(told.consumed) if told.is_whole else before.union(told.consumed)
        now.difference_update(told.stopped)
        other.consumed = now
        for each in before ^ now:
            key = self._keys.get(each)
            if key is not None:
                self._changed[key] = None

    def add(self, key: str, now_s: float) -> None:
        """Add an entity by its path (lower case)."""
        if key not in self._inboxes:
            its = digest(key)
            self._inboxes[key] = inbox = _Inbox(names.inbox(key), its, Rank(0, 0, 0), now_s)
            inbox.place = self._place(inbox)
            self._keys[its] = key
            self._changed[key] = None

    def remove(self, key: str) -> None:
        """Remove an entity that is gone."""
        inbox = self._inboxes.pop(key, None)
        if inbox is not None:
            self._keys.pop(inbox.digest, None)
            self._tell(inbox.digest, False)
            for each in (self._changed, self._waiting, self._unfit):
                each.pop(key, None)

    def wants(self, key: str) -> bool:
        """Whether this bridge should consume an inbox."""
        inbox = self._inboxes.get(key)
        return inbox is None or inbox.is_wanted

    def is_known(self, key: str) -> bool:
        """Whether another bridge that ranks before this one is known to consume an inbox."""
        inbox = self._inboxes.get(key)
        return inbox is not None and inbox.place.consuming > 0

    def begin(self, key: str) -> None:
        """Note that this bridge consumes an inbox: RabbitMQ may elect it."""
        inbox = self._inboxes.get(key)
        if inbox is not None:
            inbox.is_consumed = True
            inbox.is_leaving = False
            self._changed[key] = None

    def lead(self, key: str, now_s: float) -> None:
        """Note that this bridge has become the leader, and that its takeover has succeeded."""
        inbox = self._inboxes.get(key)
        if inbox is not None:
            inbox.leads_since_s = now_s
            inbox.unfit_until_s = 0.0
            self._changed[key] = None

    def end(self, key: str, now_s: float, *, has_failed: bool = False) -> None:
        """Note that this bridge does not consume an inbox now.

        Args:
            has_failed: it was elected, and could not take over.
        """
        inbox = self._inboxes.get(key)
        if inbox is None:
            return
        inbox.is_consumed = inbox.is_leaving = False
        inbox.leads_since_s = None
        if has_failed:
            inbox.unfit_until_s = now_s + self._times.fit_again_s
            self._unfit[key] = None
        self._tell(inbox.digest, False)
        # It stops with the term that it was to end; another one begins only when it is needed.
        inbox.place = self._place(inbox)
        if inbox.place.consuming >= CONSUMERS:
            inbox.is_wanted = False
        self._changed[key] = None

    def decide(self, now_s: float, at_most: int = 500) -> Decisions:
        """Look at what has changed, and at what waits; call again while `is_due`."""
        decisions = Decisions([], [], [], [])
        if now_s > self._allowed_s:
            rate = self._times.hand_overs_a_s
            more = (now_s - self._allowed_s) * rate
            self._allowed, self._allowed_s = min(self._allowed + more, max(rate, 1.0)), now_s
        changed = list(self._changed)[:at_most]
        for key in changed:
            del self._changed[key]
        for key in [*changed, *(each for each in self._waiting if each not in self._changed)]:
            if self._decide_one(key, now_s, decisions):
                self._waiting[key] = None
            else:
                self._waiting.pop(key, None)
        for key in [each for each in self._unfit if self._inboxes[each].unfit_until_s <= now_s]:
            del self._unfit[key]
            self._mind_told(self._inboxes[key], now_s)
        return decisions

    def untold(self, bridge: bytes) -> StandbyNotice | None:
        """Return what a bridge has not been told yet; `None`: nothing. It counts as told."""
        other = self._others.get(bridge)
        if other is None or (other.is_told and not other.untold):
            return None
        changes, other.untold = other.untold, {}
        if not other.is_told:
            other.is_told = True
            return StandbyNotice(True, tuple(self._told))
        now = tuple(each for each, is_consumed in changes.items() if is_consumed)
        return StandbyNotice(False, now, tuple(each for each in changes if not changes[each]))

    def not_told(self, bridge: bytes) -> None:
        """Tell a bridge everything anew: what it was told has not arrived, or is forgotten."""
        other = self._others.get(bridge)
        if other is not None:
            other.is_told = False

    def _place(self, inbox: _Inbox) -> Rank:
        if not self._others:
            return Rank(0, 0, 0)
        queue = inbox.name
        own = preference(self.own, queue)
        ahead = [each for name, each in self._others.items() if preference(name, queue) > own]
        consuming = sum(inbox.digest in each.consumed for each in ahead)
        return Rank(len(ahead), consuming, sum(each.arrival for each in ahead))

    def _decide_one(self, key: str, now_s: float, decisions: Decisions) -> bool:
        """Decide about one inbox; return whether time alone may change the decision."""
        inbox = self._inboxes.get(key)
        if inbox is None:
            return False
        place = self._place(inbox)
        if place != inbox.place:
            inbox.place, inbox.since_s = place, now_s
        self._mind_told(inbox, now_s)
        age_s = now_s - inbox.since_s
        if not inbox.is_wanted:
            if place.ahead < CONSUMERS or (
                place.consuming < CONSUMERS and age_s >= self._times.late_s
            ):
                inbox.is_wanted = True
                decisions.join.append(key)
                return False
            decisions.apart.append(key)
            return place.consuming < CONSUMERS
        if inbox.leads_since_s is not None:
            return self._decide_leading(key, inbox, now_s, decisions)
        if place.consuming < CONSUMERS:
            return False
        if age_s < self._times.steady_s:
            return True
        inbox.is_wanted = False
        decisions.stop.append(key)
        return False

    def _decide_leading(self, key: str, inbox: _Inbox, now_s: float, decisions: Decisions) -> bool:
        if inbox.place.consuming == 0 or inbox.is_leaving:
            return False
        assert inbox.leads_since_s is not None
        is_steady = now_s - inbox.since_s >= self._times.steady_s
        is_old = now_s - inbox.leads_since_s >= self._times.term_min_s
        if is_steady and is_old and self._allowed >= 1 and self.may_hand_over(key):
            self._allowed -= 1
            inbox.is_leaving = True
            decisions.hand_over.append(key)
            return False
        return True

    def _mind_told(self, inbox: _Inbox, now_s: float) -> None:
        """Tell the others of an inbox that is consumed, unless a takeover has failed lately."""
        self._tell(inbox.digest, inbox.is_consumed and inbox.unfit_until_s <= now_s)

    def _tell(self, entity: bytes, is_consumed: bool) -> None:
        if (entity in self._told) == is_consumed:
            return
        if is_consumed:
            self._told.add(entity)
        else:
            self._told.discard(entity)
        for other in self._others.values():
            other.untold[entity] = is_consumed
