"""Commits in an inbox on a real RabbitMQ: decided once, over kills of the leader."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable

import pytest

from bridge.broker.failpoint import STEPS
from bridge.topology import names
from bridge.wire import commits, inquiries
from bridge.wire.basic import Properties
from bridge.wire.commits import (
    NO_INQUIRY,
    CommitContent,
    CommitVerdict,
    LockedIn,
    LockedMessage,
    LockOutcome,
    OutcomeKind,
    TransferredEnvelope,
)
from bridge.wire.envelope import Item
from bridge.wire.reply import Done
from tests.fixtures.sidecar import Rig, numbers

MakeRig = Callable[..., Rig]

BARE = Properties(delivery_mode=2).encode()
LOCKED = LockedMessage(commits.source_in(b"source", LockedIn.ACTIVE), 7, 1)
COMMITTED = CommitVerdict.COMMITTED, ""


def commit(orders: Rig, identity: bytes, content: CommitContent) -> tuple[CommitVerdict, str]:
    """Commit, and return the leader's verdict."""
    answer = orders.ask(commits.encode(identity, content))
    assert isinstance(answer, Done)
    return commits.decode_verdict(answer.content)


def told(orders: Rig, inquiry: bytes, *messages: LockedMessage) -> list[inquiries.Told]:
    """Return what the leader tells of messages."""
    answer = orders.ask(inquiries.encode_inquiry(inquiry, messages))
    assert isinstance(answer, Done)
    return inquiries.decode_answer(answer.content)


def of_locked(*bodies: bytes, inquiry: bytes = NO_INQUIRY, **more: object) -> CommitContent:
    """Return a commit that stores messages, transfers two and completes the locked one."""
    return CommitContent(
        sends=[Item(BARE, body) for body in bodies],
        transfers=[TransferredEnvelope("other", b"one"), TransferredEnvelope("other", b"two")],
        outcomes=[LockOutcome(LOCKED, inquiry, OutcomeKind.COMPLETE)],
        **more,  # type: ignore[arg-type]
    )


def test_a_commit_is_carried_out_once_and_remembered_by_the_next_leaders(rig: MakeRig) -> None:
    """Its messages have numbers, its transfers wait, and whoever gets the locked one is told."""
    orders = rig()
    orders.start()
    identity, content = uuid.uuid4().bytes, of_locked(b"a", b"b", b"c")
    assert commit(orders, identity, content) == COMMITTED
    for _ in range(3):
        assert commit(orders, identity, content) == COMMITTED
        assert told(orders, uuid.uuid4().bytes, LOCKED) == [(OutcomeKind.COMPLETE, b"")]
        assert commit(orders, uuid.uuid4().bytes, content)[0] is CommitVerdict.REFUSED
        orders.sidecars[-1].stop()
        orders.start()
    orders.send(b"d")
    seen = orders.take(4)
    assert [each.body for each in seen] == [b"a", b"b", b"c", b"d"]
    assert numbers(seen) == [1, 2, 3, 4]
    assert orders.is_empty()
    moved = names.transfer_queue(orders.queue.name)
    assert [each.body for each in orders.take(2, queue=moved)] == [b"one", b"two"]
    assert orders.is_empty(moved)


def test_an_inquiry_ends_earlier_locks_for_the_next_leaders_too(rig: MakeRig) -> None:
    """A late commit by the lock that was lost stores nothing."""
    orders = rig()
    orders.start()
    inquiry = uuid.uuid4().bytes
    assert told(orders, inquiry, LOCKED) == [None]
    orders.sidecars[-1].stop()
    orders.start()
    verdict, reason = commit(orders, uuid.uuid4().bytes, of_locked(b"late"))
    assert verdict is CommitVerdict.REFUSED
    assert "SequenceNumber = 7" in reason
    by_new = of_locked(b"new", inquiry=inquiry[: commits.INQUIRY_BYTES])
    assert commit(orders, uuid.uuid4().bytes, by_new) == COMMITTED
    assert [each.body for each in orders.take(1)] == [b"new"]
    assert orders.is_empty()


def test_a_commit_cancels_before_it_stores(rig: MakeRig) -> None:
    """What it cancels never comes; what cannot be cancelled refuses all."""
    orders = rig()
    orders.start()
    due_ms = time.time_ns() // 1_000_000 + 3_000
    (number,) = orders.schedule(b"never", due_ms=due_ms)
    content = of_locked(b"a", cancels=(number, 99))
    assert commit(orders, uuid.uuid4().bytes, content)[0] is CommitVerdict.REFUSED
    content = of_locked(b"b", cancels=(number,))
    assert commit(orders, uuid.uuid4().bytes, content) == COMMITTED
    assert [each.body for each in orders.take(1)] == [b"b"]
    orders.schedule(b"behind", due_ms=due_ms + 1)
    assert [each.body for each in orders.take(1)] == [b"behind"]
    assert orders.is_empty()


@pytest.mark.kills
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("cancels", [False, True])
def test_a_kill_at_any_step_leaves_no_half(
    rig: MakeRig, step: str, nth: int, cancels: bool
) -> None:
    """The successor publishes what is missing, under the same numbers; the sender may ask again."""
    orders = rig()
    elder = orders.start()
    number = orders.schedule(b"never", due_ms=time.time_ns() // 1_000_000 + 600_000)[0]
    elder.stop()
    identity = uuid.uuid4().bytes
    content = of_locked(b"a", b"b", b"c", cancels=(number,) if cancels else ())
    orders.publish(
        commits.encode(identity, content), headers={"x-busbridge-kind": "envelope"}, delivery_mode=2
    )
    orders.send(b"behind")
    doomed = orders.start(failpoint=f"sequencer.number.{step}:{nth}")
    assert doomed.process.wait(120) == -signal.SIGKILL
    orders.start()
    assert commit(orders, identity, content) == COMMITTED
    assert commit(orders, uuid.uuid4().bytes, content)[0] is CommitVerdict.REFUSED
    orders.send(b"last")
    found: dict[bytes, set[int]] = {}
    while b"last" not in found:
        (each,) = orders.take(1)
        found.setdefault(each.body, set()).add(each.number)
    assert found.keys() == {b"a", b"b", b"c", b"behind", b"last"}
    assert sorted(min(each) for each in found.values()) == [2, 3, 4, 5, 6]
    assert all(len(each) == 1 for each in found.values())
    moved = names.transfer_queue(orders.queue.name)
    transferred: set[bytes] = set()
    while len(transferred) < 2:  # copies of one may come first
        transferred |= {each.body for each in orders.take(1, queue=moved)}
    assert transferred == {b"one", b"two"}
    answer = orders.cancel(number)
    assert isinstance(answer, Done) is not cancels
