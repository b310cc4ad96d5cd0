"""Tokens of locks: whose they are."""

from __future__ import annotations

import uuid

from bridge.engine.locktable import LockTable


async def test_tokens_given_under_an_earlier_name_are_own() -> None:
    """A process takes a new name with each consuming connection; nobody else knows its old ones."""
    table = LockTable(lambda source, holding: None)
    earlier = table.instance
    later = table.rename()

    assert later != earlier
    assert table.is_own(uuid.UUID(bytes=earlier + bytes(10)))
    assert table.is_own(uuid.UUID(bytes=later + bytes(10)))
    assert not table.is_own(uuid.UUID(bytes=bytes(16)))
