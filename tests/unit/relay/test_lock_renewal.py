"""Locks of messages in hand are renewed together, and each by itself where that is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from uuid import UUID

import pytest

from bridge.relay.running.lock_renewal import RENEWED_TOGETHER, LockRenewal
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteError, RemoteLockLost, RemoteTimeout
from bridge.remote.message import RemoteMessage

NOW_MS = 1_000_000
LOST = RemoteLockLost("com.microsoft:message-lock-lost", "lost", False)


class Locks:
    """A queue's locks, and the machine that is told of them."""

    def __init__(self, count: int, lost: Iterable[int] = ()) -> None:
        self.held = {key: _delivery(key) for key in range(count)}
        self.lost_ones = {_token(key) for key in lost}
        self.on_asked: Callable[[], object] = lambda: None
        self.silence: RemoteError | None = None
        self.asked: list[int] = []
        self.told: dict[int, str] = {}
        self.renewal = LockRenewal(
            *(self, self, self.held.get),
            lost=self.lost,
            on_told=lambda: None,
            now_ms=lambda: NOW_MS,
        )

    async def renew_lock(self, lock_tokens: Sequence[UUID]) -> list[int]:
        """Refuse all if one is lost, as Service Bus does."""
        self.asked.append(len(lock_tokens))
        self.on_asked()
        if self.silence is not None:
            raise self.silence
        if self.lost_ones & set(lock_tokens):
            raise LOST
        return [NOW_MS + 30_000] * len(lock_tokens)

    def renewed(self, keys: Iterable[int], lock_ms: int, now_ms: int) -> None:
        """Note what is told."""
        assert (lock_ms, now_ms) == (30_000, NOW_MS)
        self.told |= dict.fromkeys(keys, "renewed")

    def renewal_failed(self, keys: Iterable[int], now_ms: int) -> None:
        """Note what is told."""
        self.told |= dict.fromkeys(keys, "failed")

    async def lost(self, key: int) -> None:
        """Note what is told."""
        self.told[key] = "lost"


def _token(key: int) -> UUID:
    return UUID(int=key + 1)


def _delivery(key: int) -> RemoteDelivery:
    return RemoteDelivery(RemoteMessage.of(), _token(key), _token(key).bytes_le)


def test_locks_are_renewed_by_requests_of_so_many() -> None:
    """All of them, each once."""
    locks = Locks(2 * RENEWED_TOGETHER + 1)
    asyncio.run(locks.renewal.renew(list(locks.held)))
    assert locks.asked == [RENEWED_TOGETHER, RENEWED_TOGETHER, 1]
    assert locks.told == dict.fromkeys(locks.held, "renewed")


def test_one_lost_lock_costs_no_other_one() -> None:
    """The request for all is refused, so each is asked for by itself."""
    locks = Locks(3, lost=(1,))
    asyncio.run(locks.renewal.renew([0, 1, 2]))
    assert locks.asked == [3, 1, 1, 1]
    assert locks.told == {0: "renewed", 1: "lost", 2: "renewed"}


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_settled_meanwhile_is_not_lost(count: int) -> None:
    """Its lock has ended by its settlement, and the request that names it is refused."""
    locks = Locks(count, lost=(0,))
    locks.on_asked = partial(locks.held.pop, 0, None)
    asyncio.run(locks.renewal.renew(list(locks.held)))
    assert locks.told == dict.fromkeys(range(1, count), "renewed")


def test_nothing_is_asked_for_what_is_settled() -> None:
    """A request without a lock would be one for nothing."""
    locks = Locks(0)
    asyncio.run(locks.renewal.renew([0, 1]))
    assert (locks.asked, locks.told) == ([], {})


def test_what_is_not_answered_is_asked_for_again() -> None:
    """The machine says when."""
    locks = Locks(2)
    locks.silence = RemoteTimeout("com.microsoft:timeout", "no answer")
    asyncio.run(locks.renewal.renew([0, 1]))
    assert (locks.asked, locks.told) == ([2], {0: "failed", 1: "failed"})
