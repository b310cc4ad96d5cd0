"""What a migration says of each message that it imports: it keeps its number, its time and state.

    number i64 | enqueued time i64, UTC ms | state u8, 4 more of a dead letter | deliveries u32
    | short id of a subscription, 6 bytes, or zeros for the entity itself | topic's number i64
    | identity 20 bytes

It stands in an envelope, in front of a message's properties. The identity is a digest of the run
and of all that the run has sent for the message: the same message that comes again, in whatever
envelope, has it again, and no other message has it.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, NamedTuple

from bridge.model.name import SHORT_ID_BYTES

ACTIVE: Final = 0
DEFERRED: Final = 1
SCHEDULED: Final = 2
"""The states of a message, as Azure's annotation `x-opt-message-state` gives them."""

_DEAD: Final = 4
_FORM: Final = struct.Struct(f">qqBI{SHORT_ID_BYTES}sq20s")
IMPORTED_BYTES: Final = _FORM.size


class Imported(NamedTuple):
    """A message as it was at its source.

    Attributes:
        number: its sequence number.
        enqueued_ms: its enqueued time, UTC ms.
        state: `ACTIVE`, `DEFERRED` or `SCHEDULED`.
        is_dead: it was in the dead-letter queue.
        deliveries: its delivery count, as a peek gives it.
        short: the short id of the subscription that had it; `gaps.OWN` for a queue's, and for a
            topic's scheduled one.
        topics_number: its number in the topic, of a subscription's message; else 0.
        identity: its identity at the target, 20 bytes.
    """

    number: int
    enqueued_ms: int
    state: int
    is_dead: bool
    deliveries: int
    short: bytes
    topics_number: int
    identity: bytes


def encode(imported: Imported) -> bytes:
    """Return it as bytes of a fixed length."""
    number, enqueued_ms, state, is_dead, deliveries, short, topics_number, identity = imported
    kind = state | _DEAD if is_dead else state
    return _FORM.pack(number, enqueued_ms, kind, deliveries, short, topics_number, identity)


def decode(raw: bytes, at: int) -> Imported:
    """Read the bytes of `encode` at a place.

    Raises:
        struct.error: they end too early.
        ValueError: there is no such state.
    """
    number, enqueued_ms, kind, deliveries, short, topics_number, identity = _FORM.unpack_from(
        raw, at
    )
    state, is_dead = kind & ~_DEAD, bool(kind & _DEAD)
    if state > SCHEDULED or (is_dead and state == SCHEDULED):
        raise ValueError(f"a message of state {kind}")
    return Imported(number, enqueued_ms, state, is_dead, deliveries, short, topics_number, identity)


def run_digest(run: str) -> bytes:
    """Return the 16 bytes by which an envelope of imports names its run, as its identity."""
    return hashlib.sha256(run.encode()).digest()[:16]


def identity_of(run: str, place: str, raw: bytes) -> bytes:
    """Return the identity of an imported message, 20 bytes.

    Args:
        run: the name of the run.
        place: where the message is to stand, as far as its bytes do not say it.
        raw: the message as the run has sent it, with all annotations.
    """
    parts = [run.encode(), place.encode(), raw]
    return hashlib.sha256(
        b"".join([len(each).to_bytes(8, "big") + each for each in parts])
    ).digest()[:20]
