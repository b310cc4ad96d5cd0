"""Locks are renewed while a command works; what it settles meanwhile has none any more."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from uuid import UUID, uuid4

from bridge.commands.clock import now_ms
from bridge.commands.output import Output
from bridge.commands.taking_run import Judged, TakingRun
from bridge.operations.taking_effects import TakingEnd
from bridge.operations.taking_rules import TakingRules
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteLockLost
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage
from bridge.remote.outcomes import RemoteOutcome
from bridge.wire.amqp10.scalars import Timestamp

LOCK_MS = 200


class ScriptedLocks(RemoteManagement):
    """A queue with one message: it answers a renewal of its lock when it is being given back."""

    def __init__(self) -> None:
        self.is_renewing = asyncio.Event()
        self.is_given_back = asyncio.Event()
        self.is_refused = asyncio.Event()
        self._is_given = False

    async def receive(self, count: int, wait_s: float) -> list[RemoteDelivery]:
        """Give the message; say that there are no more when a renewal is under way."""
        if self._is_given:
            await self.is_renewing.wait()
            return []
        self._is_given = True
        return [_delivery(1)]

    async def settle(self, delivery: RemoteDelivery, outcome: RemoteOutcome) -> None:
        """Take the message back, and say so a while after the renewal is answered."""
        self.is_given_back.set()
        await self.is_refused.wait()
        for _ in range(20):
            await asyncio.sleep(0)

    async def renew_lock(self, lock_tokens: Sequence[UUID]) -> list[int]:
        """Refuse: the message has been given back."""
        self.is_renewing.set()
        await self.is_given_back.wait()
        self.is_refused.set()
        raise RemoteLockLost("com.microsoft:message-lock-lost", "lost", False)

    def lost(self, delivery: RemoteDelivery) -> None:
        """No lock ends by itself here."""
        raise AssertionError(delivery)

    async def close(self) -> None:
        """Nothing is left."""

    def rest(self) -> list[str]:
        """Nothing is left."""
        return []

    def is_named(self, number: int) -> bool:
        """There are no such sentences."""
        return False


def _delivery(number: int) -> RemoteDelivery:
    token = uuid4()
    until = Timestamp(now_ms() + LOCK_MS)
    annotations = {"x-opt-sequence-number": number, "x-opt-locked-until": until}
    return RemoteDelivery(RemoteMessage.of(annotations=annotations), token, token.bytes_le)


def test_a_renewal_that_comes_too_late_for_what_was_given_back_ends_nothing() -> None:
    """The lock has ended with the message's return, and is not lost."""

    async def take() -> TakingEnd:
        locks = ScriptedLocks()

        async def judge(delivery: RemoteDelivery) -> Judged:
            return Judged(False)

        output = Output(stdout=io.StringIO(), stderr=io.StringIO())
        with output.progress(None, "taking") as progress:
            run = TakingRun(
                locks, locks, TakingRules(is_moving=False), judge, wait_s=0.1, progress=progress
            )
            async with asyncio.timeout(120):
                ended = await run.run(asyncio.Event())
        assert run.machine.account.given_back == 1
        return ended.end

    assert asyncio.run(take()) is TakingEnd.DONE
