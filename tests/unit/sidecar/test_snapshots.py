"""How far before a snapshot a successor reads: to all that may come again."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import Queue, Tier
from bridge.sidecar.leader.snapshots import MARGIN_S, Snapshots
from bridge.sidecar.leader.unacked_arrivals import UnackedArrival, UnackedArrivals
from bridge.wire.snapshot import SnapshotParts


def first_read(sequencer: Sequencer, snapshots: Snapshots, first_unacked: int) -> int:
    """Write a snapshot; return the first entry that its reader needs."""
    entries = sequencer.journal.entries
    parts = SnapshotParts()
    for each in snapshots.take(first_unacked):
        found = parts.add(each.body)
    assert found is not None
    return entries - found.span


def test_an_arrival_that_was_unacked_until_just_now_is_within_the_span() -> None:
    """RabbitMQ may not have taken its ack, however long ago its messages were numbered."""
    now_s = 0.0
    sequencer = Sequencer(Queue(name="q"), Tier.STANDARD, blank(is_partitioned=False))
    snapshots = Snapshots(sequencer, bytes(16), "boot", lambda: now_s)

    assert first_read(sequencer, snapshots, 0) == 0
    sequencer.journal.entries = numbered = 50
    now_s = 10.0
    first_read(sequencer, snapshots, 7)  # an arrival of the entries from 7 on waits for its ack
    now_s += MARGIN_S + 0.1
    # It was acked a moment ago.
    assert first_read(sequencer, snapshots, sequencer.journal.entries) <= 7
    now_s += MARGIN_S + 0.1
    assert first_read(sequencer, snapshots, sequencer.journal.entries) >= numbered


STEPS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from((100, 1_000, 2_100))),
    st.tuples(st.just("arrive"), st.integers(1, 3)),
    st.tuples(st.just("out"), st.integers(0, 50)),
    st.tuples(st.just("snapshot"), st.just(0)),
)


@given(st.lists(STEPS, min_size=20, max_size=60))
def test_a_snapshot_reaches_back_to_every_arrival_that_may_come_again(
    steps: list[tuple[str, int]],
) -> None:
    """Each arrival is acked once, when all its parts are in their places, in any order of these.

    One that is unacked, or whose ack is younger than the margin, may come again.
    """
    now_s = 0.0
    acked_s: dict[int, float] = {}
    arrivals: list[UnackedArrival] = []

    def ack(delivery: Delivery) -> None:
        assert delivery.tag not in acked_s
        assert not arrivals[delivery.tag].left
        acked_s[delivery.tag] = now_s

    unacked = UnackedArrivals(ack)
    sequencer = Sequencer(Queue(name="q"), Tier.STANDARD, blank(is_partitioned=False))
    snapshots = Snapshots(sequencer, bytes(16), "boot", lambda: now_s)
    first_read(sequencer, snapshots, sequencer.journal.entries)  # every term begins with one
    for what, count in (*steps, ("snapshot", 0)):
        entries = sequencer.journal.entries
        waiting = [each for each in arrivals if each.left]
        if what == "wait":
            now_s += count / 1_000
        elif what == "arrive":
            delivery = Delivery(len(arrivals), False, "", "", b"", b"", "", cast(Channel, None))
            arrivals.append(unacked.add(delivery, entries))
            arrivals[-1].left = count
            sequencer.journal.entries += count
        elif what == "out" and waiting:
            unacked.count_out(waiting[count % len(waiting)])
        elif what == "snapshot":
            first = unacked.first_entry
            assert first == min((each.first_entry for each in waiting), default=None)
            found = first_read(sequencer, snapshots, entries if first is None else first)
            for tag, each in enumerate(arrivals):
                if now_s - acked_s.get(tag, now_s) <= MARGIN_S:
                    assert found <= each.first_entry
    assert {tag for tag, each in enumerate(arrivals) if not each.left} == set(acked_s)
