"""The renewal of the locks of messages in hand: many by one request; if that is refused, each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol
from uuid import UUID

from bridge.relay.machine.lease import lock_ms_of
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteError, RemoteLockLost, RemoteNotFound, RemoteRefused

RENEWED_TOGETHER = 100
"""Locks of one request."""


class LockKeeper(Protocol):
    """Renews locks by their tokens."""

    async def renew_lock(self, lock_tokens: Sequence[UUID]) -> list[int]:
        """Return the locks' ends (UTC ms)."""


class RenewedMachine(Protocol):
    """The machine that has messages in hand, by their keys."""

    def renewed(self, keys: Iterable[int], lock_ms: int, now_ms: int) -> None:
        """Note that locks are valid for so long from now on."""

    def renewal_failed(self, keys: Iterable[int], now_ms: int) -> None:
        """Note that a renewal was not answered."""


class LockRenewal:
    """Renews the locks of the messages that a machine has in hand.

    Args:
        find: returns a message by its key; `None`: it is settled.
        lost: takes a message whose lock has ended, and tells the machine.
        on_told: called when the machine was told anything.
    """

    def __init__(
        self,
        keeper: LockKeeper,
        machine: RenewedMachine,
        find: Callable[[int], RemoteDelivery | None],
        *,
        lost: Callable[[int], Awaitable[None]],
        on_told: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._keeper = keeper
        self._machine = machine
        self._find = find
        self._lost = lost
        self._on_told = on_told
        self._now_ms = now_ms

    async def renew(self, keys: Sequence[int]) -> None:
        """Renew the locks of messages; what is settled meanwhile needs none."""
        for some in _batched(keys, RENEWED_TOGETHER):
            await self._renew(some)

    async def _renew(self, keys: Sequence[int]) -> None:
        found = {each: self._find(each) for each in keys}
        held = [key for key, delivery in found.items() if delivery is not None]
        tokens = [each.lock_token for each in found.values() if each is not None]
        if not held:
            return
        try:
            ends = await self._keeper.renew_lock([each for each in tokens if each])
        except (RemoteLockLost, RemoteNotFound, RemoteRefused):
            still = [each for each in held if self._find(each) is not None]
            if len(held) > 1:  # which of them it is for, what is settled by now too, is not said
                for each in still:
                    await self._renew((each,))
                return
            for each in still:
                await self._lost(each)
        except RemoteError:
            self._machine.renewal_failed(held, self._now_ms())
        else:
            now_ms = self._now_ms()
            self._machine.renewed(held, lock_ms_of(min(ends, default=0), now_ms), now_ms)
        self._on_told()


def _batched(keys: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    """Yield so many keys at a time."""
    for start in range(0, len(keys), count):
        yield keys[start : start + count]
