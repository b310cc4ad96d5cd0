"""What a run that takes messages says of them in the undo file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from bridge.commands.clock import now_ms
from bridge.commands.output import Progress
from bridge.commands.taking_run import Judged, TakingRun
from bridge.commands.undo_writing import UndoFile
from bridge.operations.taking_rules import TakingRules
from bridge.operations.undo_file import TakenFate, fates
from bridge.relay.running.judgement import number_of
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteTimeout
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage
from bridge.remote.outcomes import Complete, Release, RemoteOutcome
from bridge.wire.amqp10.scalars import Timestamp
from tests.fixtures.waiting import until
from tests.unit.operations.test_undo_file import HEAD

ENQUEUED_MS = 5
LOCK_MS = 1_000


def delivery(number: int, lock_ms: int) -> RemoteDelivery:
    """Return a message that is locked from now on."""
    annotations = {
        "x-opt-sequence-number": number,
        "x-opt-enqueued-time": Timestamp(ENQUEUED_MS),
        "x-opt-locked-until": Timestamp(now_ms() + lock_ms),
    }
    token = uuid4()
    return RemoteDelivery(RemoteMessage.of(annotations=annotations), token, token.bytes_le)


class DeafManagement(RemoteManagement):
    """Of an entity that does not answer a renewal."""

    def __init__(self) -> None:
        """It has no connection."""

    async def renew_lock(self, lock_tokens: Sequence[UUID]) -> list[int]:
        """Give no answer."""
        raise RemoteTimeout("com.microsoft:timeout")


class SlowSource:
    """Two messages; the second comes again as soon as it is given back.

    Attributes:
        is_completing: the second message is to be completed.
        answers: what is confirmed of the second message: that it was given back, or completed.
    """

    def __init__(self) -> None:
        self._coming = asyncio.Queue[RemoteDelivery]()
        for number in (1, 2):
            self._coming.put_nowait(delivery(number, LOCK_MS))
        self.is_completing = asyncio.Event()
        self.answers: dict[type[RemoteOutcome], asyncio.Event] = {
            Release: asyncio.Event(),
            Complete: asyncio.Event(),
        }

    async def receive(self, count: int, wait_s: float) -> list[RemoteDelivery]:
        """Return the next one."""
        return [await self._coming.get()]

    async def settle(self, delivery_: RemoteDelivery, outcome: RemoteOutcome) -> None:
        """Confirm it of the first at once, of the second when that is said."""
        if number_of(delivery_) != 2:
            return
        if isinstance(outcome, Release):
            self._coming.put_nowait(delivery(2, 60_000))
        else:
            self.is_completing.set()
        await self.answers[type(outcome)].wait()

    def lost(self, delivery_: RemoteDelivery) -> None:
        """No lock is lost."""

    async def close(self) -> None:
        """Nothing is kept."""

    def rest(self) -> list[str]:
        """All are given."""
        return []

    def is_named(self, number: int) -> bool:
        """There are no such sentences."""
        return False


def test_what_came_again_before_its_return_was_confirmed_is_marked_as_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marked as left behind its completion, it would be neither sent by an undo nor listed."""
    path = tmp_path / "undo"
    monkeypatch.setattr("bridge.relay.machine.lease.LOCK_MS_MIN", LOCK_MS)

    async def judge(_: RemoteDelivery) -> Judged:
        return Judged(True)

    async def run() -> None:
        source, asked = SlowSource(), asyncio.Event()
        rules = TakingRules(is_moving=False, is_written=True, rate_per_s=1)
        with UndoFile(path, HEAD) as undo:
            taking = TakingRun(
                source, DeafManagement(), rules, judge,
                undo=undo, wait_s=60, progress=Progress(None),
            )  # fmt: skip
            ended = asyncio.ensure_future(taking.run(asked))
            await asyncio.wait_for(source.is_completing.wait(), 60)
            asked.set()
            await until(lambda: taking.machine.is_ending)
            source.answers[Release].set()
            await until(lambda: bool(taking.machine.account.given_back))
            source.answers[Complete].set()
            await ended

    asyncio.run(run())
    _, *lines = path.read_text().splitlines()
    assert fates(lines)[2, ENQUEUED_MS] is TakenFate.REMOVED
