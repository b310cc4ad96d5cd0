"""A message that one bridge shows another, which has a receiver for it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from bridge.message import shown
from bridge.message.received import Received


def show(received: Received) -> bytes:
    """Return a message, without its lock (`message.shown`)."""
    return shown.encode_one(replace(received, lock_token=None))


def read_shown(
    raw: bytes, token: UUID | None, until_ms: int | None, *, is_deferred: bool
) -> Received:
    """Return what another bridge has shown, with its lock."""
    return replace(
        shown.decode_one(raw),
        lock_token=token,
        locked_until_ms=until_ms,
        is_deferred=is_deferred,
    )
