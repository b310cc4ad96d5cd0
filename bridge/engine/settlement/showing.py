"""A message in the form that one bridge sends to another bridge, whose receiver gets it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from bridge.message import shown
from bridge.message.received import Received


def show(received: Received) -> bytes:
    """Return the encoded message, without its lock token (`message.shown`)."""
    return shown.encode_one(replace(received, lock_token=None))


def read_shown(
    raw: bytes, token: UUID | None, until_ms: int | None, *, is_deferred: bool
) -> Received:
    """Return the message that another bridge has encoded, with the given lock."""
    return replace(
        shown.decode_one(raw),
        lock_token=token,
        locked_until_ms=until_ms,
        is_deferred=is_deferred,
    )
