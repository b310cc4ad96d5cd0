"""Tokens of locks: whose they are."""

from __future__ import annotations

import os
import uuid
from types import SimpleNamespace
from typing import Any, cast

from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.locktable import ProcessLocks
from bridge.message.held import Held
from tests.fixtures.waiting import until


def _held(number: int) -> HeldMessage:
    holding = HeldMessage.__new__(Held)
    holding.number = number
    return holding


async def test_messages_whose_locks_end_together_come_back_by_their_numbers() -> None:
    """At their instant, and when the bridge stops; renewed together, they end together."""
    came: list[int] = []
    table = ProcessLocks(lambda owner, holding: came.append(holding.number))
    owner = cast(Any, SimpleNamespace(queue=SimpleNamespace(lock_duration_ms=100)))

    def locked() -> list[uuid.UUID]:
        return [table.acquire(owner, _held(number), 100)[0] for number in range(1, 33)]

    ends = table.renew(locked()[::-1])
    assert (len(ends), len(set(ends))) == (32, 1)
    await until(lambda: len(came) == 32)
    assert came == list(range(1, 33))
    locked()
    assert [holding.number for _, holding in table.end_all()] == list(range(1, 33))
    table.close()


async def test_tokens_given_under_an_earlier_name_are_own() -> None:
    """A process takes a new name with each consuming connection; nobody else knows its old ones."""
    table = ProcessLocks(lambda source, holding: None)
    earlier = table.instance
    later = table.rename()

    assert later != earlier
    assert table.is_own(uuid.UUID(bytes=earlier + bytes(10)))
    assert table.is_own(uuid.UUID(bytes=later + bytes(10)))
    assert not table.is_own(uuid.UUID(bytes=bytes(16)))


async def test_tokens_cannot_be_guessed() -> None:
    """Known tokens tell nothing of the next one but its bridge."""
    drawn: list[bytes] = []

    def chance(count: int) -> bytes:
        drawn.append(os.urandom(count))
        return drawn[-1]

    table = ProcessLocks(lambda source, holding: None, chance)
    holding = _held(1)
    given = [table.acquire(cast(Any, None), holding, 60_000)[0] for _ in range(1_000)]
    table.close()

    assert [each.bytes for each in given] == [drawn[0] + secret for secret in drawn[1:]]
    assert len(set(given)) == 1_000
    assert all(len(secret) == 10 for secret in drawn[1:])
