"""A leader's decisions about states of sessions: fenced, and kept until they are set."""

from __future__ import annotations

import pytest

from bridge.machine.inbox import decided
from bridge.machine.inbox.decided import Decided
from bridge.wire import commits
from bridge.wire.commits import (
    NO_INQUIRY,
    LockedIn,
    OutcomeKind,
    StateOutcome,
    shard_of_states,
)
from tests.unit.machine.test_commits import (
    COMMITTED,
    ITEM,
    REFUSED,
    Led,
    kinds_of,
    told_in,
    verdict_in,
)

SOURCE = commits.source_in(b"orders", LockedIn.STATES)
SHARD = shard_of_states(SOURCE, 1)


def a_state(
    session_id: str = "a", inquiry: bytes = NO_INQUIRY, below_ms: int = 5, shard: int = 1
) -> StateOutcome:
    """Return what a transaction gives a session."""
    return StateOutcome(SOURCE, shard, inquiry, below_ms, session_id, b"state")


def told_of(led: Led, identity: int = 9, shard: int = 1) -> list[StateOutcome]:
    """Return what the next owner of a shard is told."""
    (told,) = told_in(led.ask(identity, shard_of_states(SOURCE, shard)))
    if told is None:
        return []
    assert told[0] is OutcomeKind.STATES
    return commits.decode_states(told[1])


def test_a_state_is_told_to_its_shards_owners_until_one_has_set_it() -> None:
    """The owner may be killed before it has set it, or before it has said so."""
    led = Led()
    assert verdict_in(led.commit(1, sends=[ITEM], states=[a_state()]))[0] is COMMITTED
    assert told_of(led, shard=0) == []
    assert told_of(led) == [a_state()]
    assert told_of(led.successor(led.published)) == [a_state()]
    assert kinds_of(led.report(a_state(session_id="A").message)) == ["states-set"]
    assert told_of(led) == []
    assert told_of(led.successor(led.published)) == []


def test_a_state_that_is_set_stays_so_when_its_commit_comes_again() -> None:
    """Its arrival was not acked; nobody would report it once more."""
    led = Led()
    led.commit(1, sends=[ITEM], states=[a_state()])
    led.report(a_state().message)
    later = led.successor(led.published, is_whole=False)
    assert verdict_in(later.commit(1, sends=[ITEM], states=[a_state()]))[0] is COMMITTED
    assert told_of(later) == []
    assert told_of(later.successor([*led.published, *later.published])) == []


def test_a_commit_by_an_earlier_owner_of_the_shard_is_refused() -> None:
    """The session may be another receiver's by now, and its state another one."""
    led = Led()
    assert told_of(led, 7) == []
    verdict, reason = verdict_in(led.commit(1, sends=[ITEM], states=[a_state()]))
    assert (verdict, reason) == (
        REFUSED,
        "The lock of the session 'a' was lost before the commit.",
    )
    assert led.sequencer.memory.counters == [0]
    present = a_state(inquiry=(7).to_bytes(8, "big"))
    later = led.successor(led.published)
    assert verdict_in(later.commit(2, states=[a_state()]))[0] is REFUSED
    assert verdict_in(later.commit(3, states=[present]))[0] is COMMITTED
    assert verdict_in(later.commit(4, states=[a_state("b", shard=0)]))[0] is COMMITTED


def test_an_owner_that_is_told_a_state_is_a_fence_too() -> None:
    """It sets what it is told; what comes later by the earlier owner's lock is refused."""
    led = Led()
    led.commit(1, states=[a_state()])
    assert told_of(led, 7) == [a_state()]
    assert verdict_in(led.commit(2, states=[a_state("b")]))[0] is REFUSED


def test_states_that_wait_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot has them. One alone is never too large."""
    monkeypatch.setattr(decided, "STATES_BYTES_MAX", 10)
    led = Led()
    led.commit(1, states=[a_state(session_id="a name longer than the bound")])
    verdict, reason = verdict_in(led.commit(2, states=[a_state()]))
    assert (verdict, reason) == (REFUSED, decided.MANY_STATES)
    led.report(a_state(session_id="a name longer than the bound").message)
    assert verdict_in(led.commit(3, states=[a_state()]))[0] is COMMITTED
    led.report(a_state().message)
    assert verdict_in(led.commit(4, states=[a_state(below_ms=6)]))[0] is COMMITTED


def test_a_snapshot_has_the_states_that_wait() -> None:
    """Beside all else."""
    led = Led()
    led.commit(1, states=[a_state(), a_state("b", below_ms=6)])
    again = Decided.decode(led.decided.encode())
    assert again.states == led.decided.states == [a_state(), a_state("b", below_ms=6)]
    again.close([a_state("B", below_ms=6).message])
    assert again.states == [a_state()]
