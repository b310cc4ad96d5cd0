"""Each inbox is consumed by two of the live bridges, whatever a bridge has heard of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from bridge.machine.inbox.standbys import (
    FIT_AGAIN_S,
    LATE_S,
    STEADY_S,
    TERM_MIN_S,
    Decisions,
    StandbyNotice,
    Standbys,
    Times,
    digest,
)
from bridge.topology import names
from bridge.topology.shards import in_order_of_choice
from tests.fixtures.examples import examples

NAMES = [f"orders-{number}" for number in range(1_000)]
BRIDGES = st.lists(st.binary(min_size=16, max_size=16), min_size=2, max_size=6, unique=True)
LONG_S = 1_000.0


def ranked(bridges: Iterable[bytes], name: str) -> list[bytes]:
    """Return bridges in their order for an entity."""
    return in_order_of_choice(bridges, names.inbox(name))


def leads(bridges: list[bytes]) -> dict[str, bytes]:
    """Return who is to lead each entity."""
    return {name: ranked(bridges, name)[0] for name in NAMES}


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=2, max_size=2, unique=True))
@settings(max_examples=50, deadline=None)
def test_two_bridges_lead_40_to_60_percent_each(bridges: list[bytes]) -> None:
    """Of 1,000 entities, whatever the bridges are called."""
    shares = Counter(leads(bridges).values())
    assert all(400 <= shares[each] <= 600 for each in bridges)


@given(BRIDGES)
@settings(max_examples=30, deadline=None)
def test_only_what_a_bridge_leads_moves_when_it_comes_or_goes(bridges: list[bytes]) -> None:
    """The next one in the order of each entity leads it."""
    gone, *rest = bridges
    before, after = leads(bridges), leads(rest)
    for name in NAMES:
        if before[name] != gone:
            assert after[name] == before[name]
        else:
            assert after[name] == ranked(bridges, name)[1]


def test_the_case_of_a_name_does_not_matter() -> None:
    """Azure's names are not case-sensitive."""
    assert digest("Orders/Subscriptions/A") == digest("orders/subscriptions/a")


def told(bridge: Standbys, other: bytes) -> StandbyNotice | None:
    """Return what a bridge tells another."""
    bridge.meet(other)
    return bridge.untold(other)


def settled(bridge: Standbys, now_s: float) -> list[Decisions]:
    """Let a bridge decide until it has nothing to look at."""
    found = [bridge.decide(now_s)]
    while bridge.is_due:
        found.append(bridge.decide(now_s))
    return found


def consuming(own: bytes, *others: bytes, leading: bool) -> Standbys:
    """A bridge that consumes `orders`, beside others that do so, too."""
    bridge = Standbys(own)
    bridge.add("orders", 0)
    settled(bridge, 0)
    bridge.begin("orders")
    if leading:
        bridge.lead("orders", 0)
    for each in others:
        bridge.hear(each, StandbyNotice(True, (digest("orders"),)))
    settled(bridge, 0)
    return bridge


def first_to_last(count: int = 3) -> list[bytes]:
    """Return bridges in their order for `orders`."""
    return ranked([bytes([number]) * 16 for number in range(count)], "orders")


def test_a_bridge_that_is_alone_consumes_every_inbox() -> None:
    """There is nobody to wait for."""
    bridge = Standbys(b"alone")
    for name in NAMES:
        bridge.add(name, 0)
    found = settled(bridge, 0)
    assert sorted(name for each in found for name in each.join) == sorted(NAMES)
    assert all(len(each.join) <= 500 for each in found), "one look stands still for all of them"


def test_a_third_bridge_stops_when_two_better_ones_have_consumed_for_a_while() -> None:
    """Not before: they may be gone again."""
    first, second, third = first_to_last()
    bridge = consuming(third, first, second, leading=False)
    assert not settled(bridge, STEADY_S - 0.1)[0].stop
    assert settled(bridge, STEADY_S)[0].stop == ["orders"]
    assert not bridge.wants("orders")


def test_a_third_bridge_goes_on_when_only_one_better_one_consumes() -> None:
    """The other one is there, and does not know the entity, say."""
    first, second, third = first_to_last()
    bridge = consuming(third, first, leading=False)
    bridge.meet(second)
    assert not any(each.stop for each in settled(bridge, LONG_S))
    assert bridge.wants("orders")


def test_a_third_bridge_joins_when_a_better_one_is_gone() -> None:
    """At once: it is second now."""
    first, second, third = first_to_last()
    bridge = consuming(third, first, second, leading=False)
    settled(bridge, STEADY_S)
    bridge.end("orders", STEADY_S)
    settled(bridge, STEADY_S)
    bridge.forget(first)
    assert settled(bridge, STEADY_S)[0].join == ["orders"]


def test_a_third_bridge_joins_late_when_a_better_one_stops() -> None:
    """Its term may begin anew in a moment."""
    first, second, third = first_to_last()
    bridge = consuming(third, first, second, leading=False)
    settled(bridge, STEADY_S)
    bridge.end("orders", STEADY_S)
    bridge.hear(first, StandbyNotice(False, (), (digest("orders"),)))
    assert settled(bridge, STEADY_S)[0].apart == ["orders"]
    assert bridge.waits
    assert settled(bridge, STEADY_S + LATE_S)[0].join == ["orders"]


def test_a_leader_hands_over_to_a_better_bridge_that_has_stood_by_for_a_while() -> None:
    """And when its own term is not new."""
    first, second, *_ = first_to_last()
    bridge = consuming(second, first, leading=True)
    assert not settled(bridge, TERM_MIN_S - 0.1)[0].hand_over
    assert settled(bridge, TERM_MIN_S)[0].hand_over == ["orders"]
    bridge.end("orders", TERM_MIN_S)
    assert bridge.wants("orders"), "it stands by from now on"


def test_a_third_bridge_that_hands_over_stands_by_no_more() -> None:
    """Two others consume the inbox."""
    first, second, third = first_to_last()
    bridge = consuming(third, first, second, leading=True)
    assert settled(bridge, TERM_MIN_S)[0].hand_over == ["orders"]
    bridge.end("orders", TERM_MIN_S)
    assert not bridge.wants("orders")


def test_the_first_bridge_never_hands_over_nor_stops() -> None:
    """This holds whichever bridges consume the inbox."""
    first, second, third = first_to_last()
    bridge = consuming(first, second, third, leading=True)
    assert settled(bridge, LONG_S) == [Decisions([], [], [], [])]
    assert not bridge.waits


def test_a_bridge_that_comes_and_goes_moves_nothing() -> None:
    """Every time it must stand by for a while."""
    first, second, *_ = first_to_last()
    bridge = consuming(second, leading=True)
    for turn in range(20):
        bridge.hear(first, StandbyNotice(True, (digest("orders"),)))
        assert not settled(bridge, LONG_S + turn * STEADY_S)[0].hand_over
        assert not settled(bridge, LONG_S + (turn + 0.9) * STEADY_S)[0].hand_over
        bridge.forget(first)


def test_hand_overs_are_spread_in_time() -> None:
    """20 a second; each entity waits for its next leader."""
    own, other = bytes([1]) * 16, bytes([2]) * 16
    bridge = Standbys(own)
    for name in NAMES:
        bridge.add(name, 0)
    settled(bridge, 0)
    for name in NAMES:
        bridge.begin(name)
        bridge.lead(name, 0)
    bridge.hear(other, StandbyNotice(True, tuple(map(digest, NAMES))))
    settled(bridge, 0)
    moved = [
        name
        for tick in range(400)
        for each in settled(bridge, LONG_S + tick * 0.25)
        for name in each.hand_over
    ]
    ours = [name for name in NAMES if ranked([own, other], name)[0] == other]
    assert sorted(moved) == sorted(ours)
    first_s = settled(bridge, LONG_S)
    assert not any(each.hand_over for each in first_s), "none hands over twice"


def test_what_may_not_be_handed_over_stays() -> None:
    """Its takeover would take seconds."""
    first, second, *_ = first_to_last()
    bridge = consuming(second, first, leading=True)
    bridge.may_hand_over = lambda key: False
    assert not settled(bridge, LONG_S)[0].hand_over


def test_nobody_hears_of_a_standby_whose_takeover_has_failed() -> None:
    """A leader would hand over to it again and again."""
    first, second, *_ = first_to_last()
    bridge = consuming(first, leading=False)
    assert told(bridge, second) == StandbyNotice(True, (digest("orders"),))
    bridge.end("orders", 1, has_failed=True)
    bridge.begin("orders")
    settled(bridge, 2)
    assert told(bridge, second) == StandbyNotice(False, (), (digest("orders"),))
    settled(bridge, 1 + FIT_AGAIN_S)
    assert told(bridge, second) == StandbyNotice(False, (digest("orders"),), ())


def test_a_bridge_tells_only_what_has_changed() -> None:
    """A new one, or one that may have missed something, is told everything."""
    first, second, third = first_to_last()
    bridge = consuming(first, leading=False)
    assert told(bridge, second) == StandbyNotice(True, (digest("orders"),))
    assert told(bridge, second) is None
    bridge.end("orders", 1)
    assert told(bridge, third) == StandbyNotice(True, ())
    assert told(bridge, second) == StandbyNotice(False, (), (digest("orders"),))
    bridge.not_told(second)
    assert told(bridge, second) == StandbyNotice(True, ())


def test_an_entity_that_is_gone_is_consumed_no_more() -> None:
    """And the others hear of it."""
    first, second, *_ = first_to_last()
    bridge = consuming(first, leading=True)
    told(bridge, second)
    bridge.remove("orders")
    assert told(bridge, second) == StandbyNotice(False, (), (digest("orders"),))
    assert settled(bridge, LONG_S) == [Decisions([], [], [], [])]


@dataclass
class _Process:
    """A bridge of the model: its view, and the inboxes that it consumes or leads in RabbitMQ."""

    standbys: Standbys
    consumes: set[str] = field(default_factory=set)
    heard: list[tuple[bytes, StandbyNotice]] = field(default_factory=list)


ENTITIES = ["a", "b", "c", "d"]


class Bridges(RuleBasedStateMachine):
    """Bridges that come, are killed, learn late of the others, and of entities."""

    @initialize()
    def begin(self) -> None:
        self.now_s = 0.0
        self.count = 0
        self.live: dict[bytes, _Process] = {}
        self.queues: dict[str, list[bytes]] = {entity: [] for entity in ENTITIES}
        """RabbitMQ's consumers of each inbox; the first one is active, and leads."""
        self.start_one(set(ENTITIES))

    def start_one(self, known: set[str]) -> None:
        self.count += 1
        name = self.count.to_bytes(16, "big")
        times = Times(hand_overs_a_s=2)
        process = self.live[name] = _Process(Standbys(name, times))
        for entity in sorted(known):
            process.standbys.add(entity, self.now_s)

    @rule(known=st.sets(st.sampled_from(ENTITIES)))
    def start(self, known: set[str]) -> None:
        if len(self.live) < 5:
            self.start_one(known)

    @rule(at=st.integers(0, 4), entity=st.sampled_from(ENTITIES))
    def learn_of_an_entity(self, at: int, entity: str) -> None:
        for process in list(self.live.values())[at : at + 1]:
            process.standbys.add(entity, self.now_s)

    @rule(at=st.integers(0, 4))
    def kill(self, at: int) -> None:
        if len(self.live) > 1:
            name = list(self.live)[at % len(self.live)]
            del self.live[name]
            for entity, queue in self.queues.items():
                self.leave(entity, queue, name)

    @rule(at=st.integers(0, 4), to=st.integers(0, 4))
    def meet(self, at: int, to: int) -> None:
        names = list(self.live)
        self.live[names[at % len(names)]].standbys.meet(names[to % len(names)])

    @rule(at=st.integers(0, 4), to=st.integers(0, 4), is_lost=st.booleans())
    def tell(self, at: int, to: int, is_lost: bool) -> None:
        names = list(self.live)
        name, other = names[at % len(names)], names[to % len(names)]
        process = self.live[name]
        if (what := process.standbys.untold(other)) is None:
            return
        if is_lost:
            process.standbys.not_told(other)
        else:
            self.live[other].heard.append((name, what))

    @rule(at=st.integers(0, 4))
    def hear(self, at: int) -> None:
        for process in list(self.live.values())[at : at + 1]:
            self.hear_all(process)

    def hear_all(self, process: _Process) -> None:
        for name, what in process.heard:
            process.standbys.hear(name, what)
        process.heard.clear()

    @rule(at=st.integers(0, 4))
    def find_the_dead(self, at: int) -> None:
        for process in list(self.live.values())[at : at + 1]:
            self.forget_dead(process)

    def forget_dead(self, process: _Process) -> None:
        for other in process.standbys.others:
            if other not in self.live:
                process.standbys.forget(other)

    @rule(by_s=st.sampled_from([0.1, 1.0, LATE_S, STEADY_S, TERM_MIN_S, FIT_AGAIN_S]))
    def pass_time(self, by_s: float) -> None:
        self.now_s += by_s

    @rule(at=st.integers(0, 4), entity=st.sampled_from(ENTITIES), has_failed=st.booleans())
    def end_a_term(self, at: int, entity: str, has_failed: bool) -> None:
        for name, process in list(self.live.items())[at : at + 1]:
            if entity in process.consumes:
                process.consumes.remove(entity)
                self.leave(entity, self.queues[entity], name)
                process.standbys.end(entity, self.now_s, has_failed=has_failed)

    @rule(at=st.integers(0, 4))
    def decide(self, at: int) -> None:
        for name in list(self.live)[at : at + 1]:
            self.carry_out(name)

    def carry_out(self, name: bytes) -> None:
        """Do as the sidecar does: end terms, and begin one wherever one is wanted."""
        process = self.live[name]
        for decisions in settled(process.standbys, self.now_s):
            for entity in (*decisions.stop, *decisions.hand_over):
                if entity in process.consumes:
                    process.consumes.remove(entity)
                    self.leave(entity, self.queues[entity], name)
                    process.standbys.end(entity, self.now_s)
        for entity in process.standbys.known:
            if process.standbys.wants(entity) and entity not in process.consumes:
                process.consumes.add(entity)
                self.queues[entity].append(name)
                process.standbys.begin(entity)
                self.elect(entity)
        for entity in process.standbys.known:
            if not process.standbys.wants(entity):
                ahead = ranked([name, *process.standbys.others], entity).index(name)
                assert ahead >= 2, "a first or second of those that it knows always consumes"

    def leave(self, entity: str, queue: list[bytes], name: bytes) -> None:
        if name in queue:
            queue.remove(name)
            self.elect(entity)

    def elect(self, entity: str) -> None:
        for name in self.queues[entity][:1]:
            self.live[name].standbys.lead(entity, self.now_s)

    def teardown(self) -> None:
        """When all has been heard, every inbox has its first two bridges; also after a kill."""
        if not getattr(self, "live", None):
            return
        self.settle()
        while len(self.live) > 1:
            self.kill(0)
            self.settle()

    def settle(self) -> None:
        """Let all bridges hear everything, and time pass; then the first one leads."""
        everybody = list(self.live)
        for _ in range(20):
            for name in everybody:
                process = self.live[name]
                self.forget_dead(process)
                for other in everybody:
                    process.standbys.meet(other)
                    if other != name and (what := process.standbys.untold(other)) is not None:
                        self.live[other].heard.append((name, what))
                self.hear_all(process)
                self.carry_out(name)
            self.now_s += TERM_MIN_S
        for entity in ENTITIES:
            knowing = [name for name in everybody if entity in self.live[name].standbys.known]
            best = ranked(knowing, entity)[:2]
            queue = self.queues[entity]
            assert queue[:1] == best[:1], "the first bridge leads"
            assert set(queue) == set(best), "two consume, and no others"


TestBridges = Bridges.TestCase
TestBridges.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
