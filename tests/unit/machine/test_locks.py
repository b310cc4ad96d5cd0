"""Peek-locks: one holder, one instant, and nothing beyond it."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.machine.queue.locks import LEFT_MIN_MS, Lock, Locks

DURATION_MS = 5_000


def test_a_lock_ends_at_its_instant_even_before_anyone_looks() -> None:
    """From its last millisecond on, a lock can be neither renewed, settled nor found."""
    locks: Locks[str] = Locks()
    until_ms = locks.acquire(b"t", "message", order=1, duration_ms=DURATION_MS, now_ms=1_000)

    assert until_ms == 6_000
    assert locks.find(b"t", now_ms=5_999) == "message"
    assert locks.find(b"t", now_ms=6_000) is None
    assert locks.renew(b"t", duration_ms=DURATION_MS, now_ms=6_000) is None
    assert locks.release(b"t", now_ms=6_000) is None
    assert locks.expire(6_000) == ["message"]


def test_renewal_counts_from_now() -> None:
    """A renewed lock has its full duration again, counted from the renewal."""
    locks: Locks[str] = Locks()
    locks.acquire(b"t", "message", order=1, duration_ms=DURATION_MS, now_ms=0)

    assert locks.renew(b"t", duration_ms=DURATION_MS, now_ms=4_000) == 9_000
    assert locks.expire(8_999) == []
    assert locks.next_end_ms() == 9_000


def test_the_heap_stays_small_under_renewals() -> None:
    """A lock that is renewed all day leaves nothing behind."""
    locks: Locks[str] = Locks()
    locks.acquire(b"t", "message", order=1, duration_ms=DURATION_MS, now_ms=0)
    for now_ms in range(10_000):
        locks.renew(b"t", duration_ms=DURATION_MS, now_ms=now_ms)

    assert len(locks._ends) < 100


def test_locks_that_end_together_end_in_the_order_of_their_numbers() -> None:
    """Their tokens do not count, nor the order in which they were renewed or put back."""
    locks: Locks[int] = Locks()
    for number in range(1, 9):
        locks.acquire(_token(number), number, order=number, duration_ms=DURATION_MS, now_ms=0)
    assert locks.expire(DURATION_MS) == list(range(1, 9))

    for number in range(1, 9):
        locks.acquire(_token(number), number, order=number, duration_ms=DURATION_MS, now_ms=0)
    for number in (5, 2, 8):
        locks.renew(_token(number), duration_ms=DURATION_MS, now_ms=number % 3)
    for number in (7, 1):
        lock = locks.release(_token(number), now_ms=1)
        assert lock is not None
        locks.restore(_token(number), lock)
    assert locks.expire(DURATION_MS + 10) == list(range(1, 9))


def _token(serial: int) -> bytes:
    """A token whose order among tokens is none of its message's."""
    return (serial * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "big") + serial.to_bytes(8, "big")


def _serial(token: bytes) -> int:
    return int.from_bytes(token[8:], "big")


class LocksAgainstADictionary(RuleBasedStateMachine):
    """Whatever happens in whatever order, the locks are those of a plain dictionary of ends."""

    def __init__(self) -> None:
        super().__init__()
        self.locks: Locks[int] = Locks()
        self.ends: dict[bytes, int] = {}
        self.pinned: dict[bytes, int] = {}
        self.taken: dict[bytes, Lock[int]] = {}
        self.now_ms = 0
        self.serial = 0

    @rule(duration_ms=st.integers(1, 20))
    def acquire(self, duration_ms: int) -> None:
        self.serial += 1
        token = _token(self.serial)
        until_ms = self.locks.acquire(
            token,
            self.serial,
            order=self.serial,
            duration_ms=duration_ms,
            now_ms=self.now_ms,
        )
        self.ends[token] = until_ms
        assert until_ms == self.now_ms + duration_ms

    @precondition(lambda self: self.ends)
    @rule(choice=st.data(), duration_ms=st.integers(1, 20))
    def renew(self, choice: st.DataObject, duration_ms: int) -> None:
        token = choice.draw(st.sampled_from(sorted(self.ends)))
        until_ms = self.locks.renew(token, duration_ms=duration_ms, now_ms=self.now_ms)
        if self.now_ms < self.ends[token]:
            assert until_ms == self.now_ms + duration_ms
            self.ends[token] = until_ms
        else:
            assert until_ms is None

    @precondition(lambda self: self.ends)
    @rule(choice=st.data())
    def release(self, choice: st.DataObject) -> None:
        token = choice.draw(st.sampled_from(sorted(self.ends)))
        lock = self.locks.release(token, now_ms=self.now_ms)
        assert (lock is not None) == (self.now_ms < self.ends[token])
        if lock is not None:
            self.taken[token] = lock
            del self.ends[token]

    @precondition(lambda self: self.taken)
    @rule(choice=st.data())
    def restore(self, choice: st.DataObject) -> None:
        token = choice.draw(st.sampled_from(sorted(self.taken)))
        lock = self.taken.pop(token)
        if lock.is_pinned:
            lock.unpin(self.now_ms)
        self.locks.restore(token, lock)
        self.ends[token] = lock.until_ms

    @precondition(lambda self: self.ends)
    @rule(choice=st.data())
    def pin(self, choice: st.DataObject) -> None:
        token = choice.draw(st.sampled_from(sorted(self.ends)))
        left_ms = self.ends[token] - self.now_ms
        held = self.locks.pin(token, now_ms=self.now_ms)
        assert held == (_serial(token) if left_ms > 0 else None)
        if held is not None:
            del self.ends[token]
            self.pinned[token] = left_ms

    @precondition(lambda self: self.pinned)
    @rule(choice=st.data())
    def unpin(self, choice: st.DataObject) -> None:
        token = choice.draw(st.sampled_from(sorted(self.pinned)))
        until_ms = self.locks.unpin(token, now_ms=self.now_ms)
        assert until_ms == self.now_ms + max(self.pinned.pop(token), LEFT_MIN_MS)
        assert self.locks.unpin(token, now_ms=self.now_ms) is None
        self.ends[token] = until_ms

    @precondition(lambda self: self.pinned)
    @rule(choice=st.data(), duration_ms=st.integers(1, 3_000))
    def renew_a_pinned_one(self, choice: st.DataObject, duration_ms: int) -> None:
        token = choice.draw(st.sampled_from(sorted(self.pinned)))
        until_ms = self.locks.renew(token, duration_ms=duration_ms, now_ms=self.now_ms)
        assert until_ms == self.now_ms + duration_ms
        self.pinned[token] = duration_ms

    @precondition(lambda self: self.pinned)
    @rule(choice=st.data())
    def settle_a_pinned_one(self, choice: st.DataObject) -> None:
        token = choice.draw(st.sampled_from(sorted(self.pinned)))
        assert self.locks.release(token, now_ms=self.now_ms) is None
        assert self.locks.pin(token, now_ms=self.now_ms) is None

    @precondition(lambda self: self.pinned)
    @rule(choice=st.data())
    def take_a_pinned_one(self, choice: st.DataObject) -> None:
        token = choice.draw(st.sampled_from(sorted(self.pinned)))
        lock = self.locks.take_pinned(token)
        assert lock is not None
        assert self.locks.take_pinned(token) is None
        self.taken[token] = lock
        del self.pinned[token]

    @rule()
    def lose_even_ones(self) -> None:
        lost = self.locks.lose(lambda held: held % 2 == 0)
        tokens = [token for token in (*self.ends, *self.pinned) if _serial(token) % 2 == 0]
        assert lost == sorted(map(_serial, tokens))
        for token in tokens:
            self.ends.pop(token, None)
            self.pinned.pop(token, None)

    @rule(passed_ms=st.integers(1, 15) | st.just(2_000))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def expire(self) -> None:
        ended = self.locks.expire(self.now_ms)
        due = {token for token, until_ms in self.ends.items() if until_ms <= self.now_ms}
        assert ended == sorted(map(_serial, due))
        for token in due:
            del self.ends[token]

    @invariant()
    def the_next_end_is_the_earliest(self) -> None:
        assert self.locks.next_end_ms() == min(self.ends.values(), default=None)

    @invariant()
    def nothing_is_held_beyond_its_instant(self) -> None:
        for token, until_ms in self.ends.items():
            held = self.locks.find(token, now_ms=self.now_ms)
            assert (held is not None) == (self.now_ms < until_ms)
        for token in self.pinned:
            assert self.locks.find(token, now_ms=self.now_ms) == _serial(token)
        assert len(self.locks) == len(self.ends) + len(self.pinned)


TestLocksAgainstADictionary = LocksAgainstADictionary.TestCase
