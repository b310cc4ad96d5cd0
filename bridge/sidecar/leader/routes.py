"""The routes of numbered messages to their queues, as looks find them there or missing.

RabbitMQ confirms a publish that one queue takes. When the binding to another queue was deleted by
hand, the journal alone may have the message. So each look that finds all routes of an entity proves
what was published before it, and when a route is missing the next term publishes again what the
journal has since: to a queue all of it, to a subscription what that may lack. A receiver drops
second copies, as after a takeover. When the exchange itself is missing, so are all its bindings,
and any of them may have been deleted before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping

from bridge.broker.errors import BrokerError
from bridge.machine.inbox.left_out import Missed, first_copies
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.model.entity import Subscription, Topic
from bridge.model.name import short_id
from bridge.sidecar.leader.journal_again import arrived_before
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import LeaderState, TermOver
from bridge.topology import names
from bridge.topology.definitions import incarnation_of

LEARN_S = 20.0
"""How long a look may read a topic's journal."""

log = logging.getLogger(__name__)


class Routes:
    """The routes of the entities that this process leads; see `upkeep.Leading`.

    Args:
        states, leaders: of the sidecar, by the entity's path (lower case).
        clock: the time (UTC ms).
    """

    def __init__(
        self,
        states: Mapping[str, LeaderState],
        leaders: Mapping[str, Leader],
        clock: Callable[[], int],
    ) -> None:
        self._states = states
        self._leaders = leaders
        self._clock = clock
        self._begun_ms = 0
        self._led: list[str] = []
        self._published: dict[str, dict[bytes, int]] = {}
        self._noted: dict[str, Sequencer] = {}

    def begin_look(self) -> None:
        """Note the confirms so far: the messages have arrived if the look finds their routes."""
        self._begun_ms = self._clock()
        self._led = [key for key, leader in self._leaders.items() if leader.is_ready]
        self._published = {
            key: arrived(self._leaders[key])
            for key in self._led
            if key in self._states and isinstance(self._states[key].entity, Topic)
        }

    def end_look(self, lacking: Collection[str]) -> None:
        """Note that the look found all routes but those to these entities (lower case)."""
        for key in self._led:
            state = self._states.get(key)
            if state is None:
                continue
            if key not in lacking and not isinstance(state.entity, Topic):
                state.routed_ms = self._begun_ms
            if isinstance(state.entity, Topic):
                lack = {short_of(each) for each in _named(state.entity, lacking)}
                published = self._published.get(key, {})
                state.look({each: published[each] for each in published if each not in lack})

    def leads(self, front: str) -> bool:
        """Whether this process leads an entity."""
        return self.leader_of(front) is not None

    def leader_of(self, front: str) -> Leader | None:
        """Return the ready leader of an entity (lower case); None when this process has none."""
        leader = self._leaders.get(front)
        return leader if leader is not None and leader.is_ready else None

    def is_elsewhere(self, front: str) -> bool:
        """Whether another process leads an entity."""
        state, leader = self._states.get(front), self._leaders.get(front)
        is_here = leader is not None and leader.has_begun
        return state is not None and not is_here and state.leaderless_ms is None

    async def learn(self, front: str, lacking: Collection[str]) -> None:
        """Learn from a topic's journal what these subscriptions had at the last look before."""
        state, leader = self._states.get(front), self.leader_of(front)
        if state is None or leader is None or not isinstance(state.entity, Topic):
            return
        shorts = {short_of(each) for each in _named(state.entity, lacking)} & state.unlooked
        if not shorts:
            return
        try:
            async with asyncio.timeout(LEARN_S):
                state.look(await arrived_before(leader, state.routed_ms, shorts))
        except (BrokerError, TimeoutError) as error:
            log.warning("subscription.unlearned topic=%s error=%r", leader.name, error)

    def stop_for(self, front: str, lacking: Collection[str]) -> bool:
        """End an entity's term: routes to these paths are missing, and will be made again.

        Returns:
            Whether all that they may lack follows; else this is to be called again when this
            process leads the entity.
        """
        state, leader = self._states.get(front), self._leaders.get(front)
        self._noted.pop(front, None)
        if state is None or state.sequencer is None or self.is_elsewhere(front):
            return False
        is_whole = True
        if isinstance(state.entity, Topic):
            gone = _named(state.entity, lacking)
            known = [each for each in gone if short_of(each) not in state.unlooked]
            is_whole = len(known) == len(gone)
            leads = leader is not None and leader.is_ready
            leave_out(state.sequencer, known, state.routed, self._clock(), ends=leads)
        elif front in lacking:
            state.again_since_ms = state.routed_ms
        if leader is not None and leader.is_ready:
            stop_without(leader, "routes to its queues were deleted")
        elif is_whole:
            self._noted[front] = state.sequencer
        return is_whole

    def has_noted(self, front: str) -> bool:
        """Whether the leader follows what `stop_for` has noted last; a second call: False."""
        state, noted = self._states.get(front), self._noted.pop(front, None)
        if state is None or noted is None or state.sequencer is not noted:
            return False
        return state.again_since_ms is None  # else the note came too late for its takeover


def arrived(leader: Leader) -> dict[bytes, int]:
    """Return, for each subscription, the highest number up to which all copies are confirmed."""
    if not isinstance(leader.entity, Topic):
        return {}
    on_way = [
        Publication(*each) for one in leader.in_flight.open.values() for each in one.publications
    ]
    firsts = first_copies(on_way, names.active_exchange(leader.name))
    return {
        short: firsts[short][0] - 1 if short in firsts else number
        for short, number in leader.sequencer.memory.subscriptions.items()
    }


def leave_out(
    sequencer: Sequencer,
    subscriptions: Collection[Subscription],
    routed: Mapping[bytes, int],
    now_ms: int,
    *,
    ends: bool,
) -> None:
    """Leave subscriptions out until they have got their missing messages.

    Args:
        ends: the term ends now, and the next one begins with all routes; a takeover that is under
            way may number messages before.
    """
    memory = sequencer.memory
    for each in subscriptions:
        short = short_of(each)
        if short in memory.left_out:
            continue
        last = memory.subscriptions.get(short, 0)
        first = min(routed.get(short, 0), last) + 1
        if first > last and ends:
            continue  # it has all that it was sent
        memory.left_out[short] = Missed(first, now_ms)
        log.warning("subscription.route_lost name=%s first=%d last=%d", each.path, first, last)


def stop_without(leader: Leader, text: str) -> None:
    """Note the left-out subscriptions in the journal, and end the term."""
    if isinstance(leader.entity, Topic):
        sequencer = leader.sequencer
        note = sequencer.journal.note_left_out(sequencer.memory)
        with contextlib.suppress(BrokerError):  # the channel has just ended: the memory stays
            leader.submit((note,), site="sequencer.journal")
    leader.has_failed = True
    leader.fail(TermOver(text=text))


def short_of(subscription: Subscription) -> bytes:
    """Return the short id of a subscription's present incarnation."""
    return short_id(incarnation_of(subscription))


def _named(topic: Topic, paths: Collection[str]) -> list[Subscription]:
    return [each for each in topic.subscriptions if each.path.lower() in paths]
