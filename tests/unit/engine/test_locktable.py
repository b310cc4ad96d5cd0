"""Tokens of locks: whose they are."""

from __future__ import annotations

import os
import uuid
from typing import Any, cast

from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.locktable import LockTable


async def test_tokens_given_under_an_earlier_name_are_own() -> None:
    """A process takes a new name with each consuming connection; nobody else knows its old ones."""
    table = LockTable(lambda source, holding: None)
    earlier = table.instance
    later = table.rename()

    assert later != earlier
    assert table.is_own(uuid.UUID(bytes=earlier + bytes(10)))
    assert table.is_own(uuid.UUID(bytes=later + bytes(10)))
    assert not table.is_own(uuid.UUID(bytes=bytes(16)))


async def test_tokens_cannot_be_guessed() -> None:
    """Who knows the tokens of some locks knows nothing of the next one but its bridge."""
    drawn: list[bytes] = []

    def chance(count: int) -> bytes:
        drawn.append(os.urandom(count))
        return drawn[-1]

    table = LockTable(lambda source, holding: None, chance)
    holding = HeldMessage.__new__(HeldMessage)
    given = [table.acquire(cast(Any, None), holding, 60_000)[0] for _ in range(1_000)]
    table.close()

    assert [each.bytes for each in given] == [drawn[0] + secret for secret in drawn[1:]]
    assert len(set(given)) == 1_000
    assert all(len(secret) == 10 for secret in drawn[1:])
