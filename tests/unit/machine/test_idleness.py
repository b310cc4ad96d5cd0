"""Idleness: what counts as use, and that nothing is deleted early, or more than a minute late."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bridge.machine.usage.idleness import (
    DOUBT_MS,
    LOOK_MS,
    Use,
    Uses,
    changed,
    counts,
    key_of,
    temporaries,
    watched,
)
from bridge.machine.usage.use_reports import REPORT_MS, UseReports
from bridge.model.duration import MAX_MS
from bridge.model.entity import EntityStatus, Queue, Rule, SqlFilter, Subscription, Topic
from bridge.model.errors import ArgumentOutOfRange
from tests.fixtures.examples import examples

MINUTE_MS = 60_000
IDLE_MS = 5 * MINUTE_MS
START_MS = 1_700_000_000_000

QUEUE = Queue(name="jobs", auto_delete_on_idle_ms=IDLE_MS)
AUDIT = Subscription(topic="events", name="audit", auto_delete_on_idle_ms=IDLE_MS)
KEPT = Subscription(topic="events", name="kept")
TOPIC = Topic(name="events", auto_delete_on_idle_ms=2 * IDLE_MS, subscriptions=(AUDIT, KEPT))


def looked(uses: Uses, front: Queue | Topic, now_ms: int, *consumed: bytes) -> None:
    """Look, and find these consumers."""
    uses.look(front, bridges=(), consumed=consumed, has_scheduled=False, now_ms=now_ms)


def watch(uses: Uses, front: Queue | Topic, from_ms: int, to_ms: int) -> None:
    """Look as often as the leader does."""
    for at_ms in range(from_ms, to_ms + 1, LOOK_MS):
        looked(uses, front, at_ms)


TABLE = {
    Use.SEND: (True, True, False),
    Use.SCHEDULED: (True, True, False),
    Use.RECEIVE: (True, False, True),
    Use.PEEK: (True, False, True),
    Use.UPDATE: (True, True, True),
    Use.RULE: (False, False, True),
    Use.FORWARD: (True, False, True),
}


@pytest.mark.parametrize("use", Use)
def test_what_counts_as_use_differs_for_queue_topic_and_subscription(use: Use) -> None:
    """Azure's table: a send does not keep a subscription alive, a new rule does."""
    assert tuple(counts(each, use) for each in (QUEUE, TOPIC, AUDIT)) == TABLE[use]


def test_what_is_done_with_a_subscription_keeps_its_topic() -> None:
    """Also when the subscription itself is never deleted; not the other way round."""
    uses = Uses()
    looked(uses, TOPIC, START_MS)
    uses.note(TOPIC, KEPT, Use.RECEIVE, START_MS + 1_000)
    assert not uses.is_idle(TOPIC, START_MS + 2 * IDLE_MS)
    uses.note(TOPIC, TOPIC, Use.SEND, START_MS + 2_000)
    assert not uses.is_idle(TOPIC, START_MS + 1_000 + 2 * IDLE_MS)
    assert uses.is_idle(TOPIC, START_MS + 2_000 + 2 * IDLE_MS)
    assert uses.is_idle(AUDIT, START_MS + IDLE_MS)


def test_less_than_five_minutes_is_an_error_and_the_maximum_means_never() -> None:
    """Azure's bounds."""
    with pytest.raises(ArgumentOutOfRange):
        Queue(name="jobs", auto_delete_on_idle_ms=IDLE_MS - 1)
    assert temporaries(replace(QUEUE, auto_delete_on_idle_ms=MAX_MS)) == []


def test_a_topic_goes_alone_for_its_subscriptions_go_with_it() -> None:
    """A subscription that is idle earlier goes earlier."""
    uses = Uses()
    watch(uses, TOPIC, START_MS, START_MS + IDLE_MS)
    assert uses.idle(TOPIC, START_MS + IDLE_MS - 1) == []
    assert uses.idle(TOPIC, START_MS + IDLE_MS) == [AUDIT]
    watch(uses, TOPIC, START_MS + IDLE_MS, START_MS + 2 * IDLE_MS)
    assert uses.idle(TOPIC, START_MS + 2 * IDLE_MS) == [TOPIC]


def test_scheduled_messages_and_forwarding_keep_an_entity() -> None:
    """As long as they last; messages that merely wait do not."""
    forwarding = replace(QUEUE, forward_to="other")
    uses, waiting = Uses(), Uses()
    for at_ms in range(START_MS, START_MS + 3 * IDLE_MS, LOOK_MS):
        looked(uses, forwarding, at_ms)
        waiting.look(QUEUE, bridges=(), consumed=(), has_scheduled=True, now_ms=at_ms)
        assert not uses.idle(forwarding, at_ms)
        assert not waiting.idle(QUEUE, at_ms)


def test_the_last_access_is_kept_of_every_entity_and_by_itself() -> None:
    """AccessedAt: what bridges report; of entities that are not temporary nothing else grows."""
    front = Topic(name="events", subscriptions=(KEPT,))
    uses = Uses()
    for number in range(100):
        uses.tell(front, number.to_bytes(6, "big"), key_of(KEPT), 1_000, START_MS + number)
    size = len(uses.encode())
    kept = Uses.decode(uses.encode())

    assert kept.accessed_ms(key_of(KEPT)) == START_MS + 99 - 1_000
    assert kept.accessed_ms(key_of(front)) == 0
    assert not kept.is_idle(front, START_MS + 10 * IDLE_MS)
    uses.tell(front, b"bridge", key_of(KEPT), 60_000, START_MS + 100)  # came late
    assert uses.accessed_ms(key_of(KEPT)) == START_MS + 99 - 1_000
    assert len(uses.encode()) == size
    new = Subscription(topic="events", name="new")
    uses.tell(Topic(name="events", subscriptions=(new,)), b"bridge", key_of(new), 0, START_MS)
    assert uses.accessed_ms(key_of(KEPT)) == 0


def test_the_last_access_does_not_keep_a_temporary_entity() -> None:
    """It is no more use than the report that told of it."""
    uses = Uses()
    looked(uses, QUEUE, START_MS)
    uses.tell(QUEUE, b"bridge", key_of(QUEUE), 0, START_MS)
    uses = Uses.decode(uses.encode())
    watch(uses, QUEUE, START_MS, START_MS + 2 * IDLE_MS)

    assert uses.is_idle(QUEUE, START_MS + 2 * IDLE_MS)
    assert uses.accessed_ms(key_of(QUEUE)) == START_MS


def test_a_gap_in_looking_counts_as_use() -> None:
    """Native consumers of that time are unknown; a leader that follows at once has no gap."""
    uses = Uses()
    watch(uses, QUEUE, START_MS, START_MS + IDLE_MS - LOOK_MS)
    successor = Uses.decode(uses.encode())
    looked(successor, QUEUE, START_MS + IDLE_MS)
    assert successor.idle(QUEUE, START_MS + IDLE_MS) == [QUEUE]
    late = Uses.decode(uses.encode())
    looked(late, QUEUE, START_MS + IDLE_MS - LOOK_MS + DOUBT_MS + 1)
    assert late.idle(QUEUE, START_MS + 2 * IDLE_MS) == []


def test_an_entity_that_is_made_anew_begins_anew() -> None:
    """It has another incarnation."""
    uses = Uses()
    watch(uses, QUEUE, START_MS, START_MS + IDLE_MS)
    again = replace(QUEUE, incarnation="0123456789ab")
    looked(uses, again, START_MS + IDLE_MS)
    assert uses.idle(again, START_MS + IDLE_MS) == []


def test_a_changed_definition_is_use_and_its_own_deletion_is_not() -> None:
    """A rule, an update, a subscription more or less."""
    narrowed = replace(AUDIT, rules=(Rule(name="big", filter=SqlFilter(expression="size > 1")),))
    with_rule = replace(TOPIC, subscriptions=(narrowed, KEPT))
    deleting = replace(AUDIT, status=EntityStatus.DELETING, status_before="Active")
    dying = replace(TOPIC, subscriptions=(deleting, KEPT))
    without = replace(TOPIC, subscriptions=(KEPT,))

    assert changed(TOPIC, TOPIC) == []
    assert changed(TOPIC, with_rule) == [narrowed]
    assert changed(TOPIC, replace(TOPIC, user_metadata="x")) == [replace(TOPIC, user_metadata="x")]
    assert changed(TOPIC, dying) == []
    assert changed(dying, without) == []
    assert changed(TOPIC, without) == [without]


def test_consumers_are_looked_for_where_that_keeps_something() -> None:
    """All subscriptions of a temporary topic, else the temporary ones."""
    assert watched(QUEUE) == [QUEUE]
    assert watched(TOPIC) == [AUDIT, KEPT]
    assert watched(replace(TOPIC, auto_delete_on_idle_ms=MAX_MS)) == [AUDIT]
    assert watched(Queue(name="kept")) == []


def test_what_a_killed_bridge_had_not_told_counts_as_use() -> None:
    """It tells once a minute: its clients may have used the entity until that was over."""
    uses, reports = Uses(), UseReports()
    key, bridge = key_of(QUEUE), b"bridge"
    looked(uses, QUEUE, START_MS)
    reports.note(key, START_MS)
    for each, age_ms in reports.take(START_MS):
        uses.tell(QUEUE, bridge, each, age_ms, START_MS)
    reports.note(key, START_MS + 29_000)
    assert not reports.is_due(START_MS + 29_000)
    watch(uses, QUEUE, START_MS + LOOK_MS, START_MS + IDLE_MS + MINUTE_MS)  # without the bridge
    assert uses.idle(QUEUE, START_MS + LOOK_MS + IDLE_MS - 1) == []
    assert uses.idle(QUEUE, START_MS + LOOK_MS + IDLE_MS) == [QUEUE]


class Bridges(RuleBasedStateMachine):
    """Several bridges, one of them the leader; kills of either, in steps of whole seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.used_ms = START_MS
        self.is_deleted = False
        self.uses = Uses()
        self.journal = b""
        self.enqueued_ms = 0
        self.bridges: dict[bytes, UseReports] = {}
        self.made = 0
        self.words: dict[bytes, list[int]] = {}
        self.consumers = self.seen = False

    @initialize()
    def begin(self) -> None:
        self.add_bridge()
        self.look()

    @rule()
    def add_bridge(self) -> None:
        self.made += 1
        self.bridges[self.made.to_bytes(6, "big")] = UseReports()

    @precondition(lambda self: not self.is_deleted and self.bridges)
    @rule(pick=st.integers(0, 9))
    def use(self, pick: int) -> None:
        """A client receives, settles or peeks."""
        bridge = list(self.bridges)[pick % len(self.bridges)]
        self.bridges[bridge].note(key_of(QUEUE), self.now_ms)
        self.used_ms = self.now_ms
        self.tell()

    @precondition(lambda self: not self.is_deleted)
    @rule()
    def send(self) -> None:
        self.uses.note_sent(key_of(QUEUE), self.now_ms)
        self.enqueued_ms = self.used_ms = self.now_ms

    @precondition(lambda self: self.bridges)
    @rule(pick=st.integers(0, 9))
    def kill(self, pick: int) -> None:
        del self.bridges[list(self.bridges)[pick % len(self.bridges)]]

    @rule()
    def kill_leader(self) -> None:
        """Another bridge follows it."""
        self.uses = Uses.decode(self.journal)
        self.uses.note_sent(key_of(QUEUE), self.enqueued_ms)

    @rule()
    def toggle_consumer(self) -> None:
        """A native consumer comes or goes; one that no look has met is not known."""
        if self.consumers and self.seen:
            self.used_ms = self.now_ms
        self.consumers, self.seen = not self.consumers, False

    @rule(seconds=st.integers(1, 400))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            if self.is_deleted:
                return
            self.now_ms += 1_000
            self.tell()
            if self.now_ms - self.uses.looked_ms >= LOOK_MS:
                self.look()
            self.decide()
            self.check()

    def tell(self) -> None:
        for bridge, reports in self.bridges.items():
            if reports.is_due(self.now_ms):
                self.words.setdefault(bridge, []).append(self.now_ms)
                for key, age_ms in reports.take(self.now_ms):
                    self.uses.tell(QUEUE, bridge, key, age_ms, self.now_ms)
                self.journal = self.uses.encode()

    def look(self) -> None:
        if self.consumers:
            self.seen, self.used_ms = True, self.now_ms
        self.uses.look(
            QUEUE,
            bridges=list(self.bridges),
            consumed=[key_of(QUEUE)] if self.consumers else [],
            has_scheduled=False,
            now_ms=self.now_ms,
        )
        self.journal = self.uses.encode()

    def decide(self) -> None:
        if not self.uses.idle(QUEUE, self.now_ms):
            return
        for reports in self.bridges.values():
            age_ms = reports.age_ms(key_of(QUEUE), self.now_ms)
            if age_ms is not None:
                self.uses.answer(QUEUE, key_of(QUEUE), age_ms, self.now_ms)
        self.look()
        if self.uses.idle(QUEUE, self.now_ms):
            assert self.now_ms - self.used_ms >= IDLE_MS, "early"
            self.is_deleted = True

    def check(self) -> None:
        if not self.is_deleted:
            assert self.now_ms - self.used_ms <= IDLE_MS + MINUTE_MS, "late"

    @invariant()
    def words_are_a_minute_apart(self) -> None:
        for told in self.words.values():
            assert all(b - a >= REPORT_MS for a, b in itertools.pairwise(told))


Bridges.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
test_never_early_and_a_minute_late_at_most = Bridges.TestCase
