"""The known messages: numbered by earlier terms of a sequencer, and possible to come again.

A snapshot holds them, so that a reader of the snapshot need not read the entries of earlier terms.
A commit that was decided is known, too, as if it were a message: its identity is `decision_key`,
its number the verdict. When its arrival comes again, it may have to be carried out further.

Messages of one envelope stand together: they have one identity but for its last four bytes, which
count, and mostly consecutive numbers.

    known       identity of the first, 20 bytes | its number i64 | enqueued time i64 | count u32 |
                trusted u8, repeated
    activated   number as scheduled i64 | number i64 | enqueued time i64 | trusted u8, repeated
    cancelled   identity of the cancel's envelope, 16 bytes, repeated
    copies      identity of a known message, 20 bytes, or number as scheduled of an activated one,
                i64 | size u32 | its copies (`wire.copies`), repeated
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from bridge.wire.envelope import IDENTITY_BYTES, ITEM_IDENTITY_BYTES
from bridge.wire.sections import MalformedEntry

_WAITS = -(2**63)
"""In place of an enqueued time: the message waits for its time."""

_DECISION = b"\xff" * (ITEM_IDENTITY_BYTES - IDENTITY_BYTES)
"""In place of a message's place in its envelope."""

_KNOWN = struct.Struct(">16sIqqIB")
_SIZE = struct.Struct(">I")
_NUMBER = struct.Struct(">q")
_ACTIVATED = struct.Struct(">qqqB")


class Known(NamedTuple):
    """A message that the journal holds already.

    Attributes:
        number: the message's number.
        enqueued_ms: the enqueued time; `None` while a scheduled message waits.
        is_trusted: the message has reached the queue that the journal gives.
        copies: the encoded copies of a topic's message (`wire.copies`); b"" for a queue's.
    """

    number: int
    enqueued_ms: int | None
    is_trusted: bool
    copies: bytes = b""


def decision_key(identity: bytes) -> bytes:
    """Return the identity under which the decision about a commit is known.

    Args:
        identity: the transaction's id, 16 bytes; no commit has so many messages.
    """
    return identity + _DECISION


def encode_copies(known: dict[bytes, Known]) -> bytes:
    """Return the copies of known messages as bytes."""
    return b"".join(
        [
            identity + _SIZE.pack(len(each.copies)) + each.copies
            for identity, each in known.items()
            if each.copies
        ]
    )


def encode_activated_copies(activated: dict[int, Known]) -> bytes:
    """Return the copies of activated messages as bytes."""
    return encode_copies(
        {_NUMBER.pack(number): each for number, each in activated.items() if each.copies}
    )


def add_copies(known: dict[bytes, Known], raw: bytes) -> None:
    """Read the bytes of `encode_copies`."""
    for key, copies in _read_copies(raw, ITEM_IDENTITY_BYTES):
        if key in known:
            known[key] = known[key]._replace(copies=copies)


def add_activated_copies(activated: dict[int, Known], raw: bytes) -> None:
    """Read the bytes of `encode_activated_copies`."""
    for key, copies in _read_copies(raw, _NUMBER.size):
        (number,) = _NUMBER.unpack(key)
        if number in activated:
            activated[number] = activated[number]._replace(copies=copies)


def _read_copies(raw: bytes, key_bytes: int) -> list[tuple[bytes, bytes]]:
    found = []
    at = 0
    while at < len(raw):
        body_at = at + key_bytes + _SIZE.size
        if body_at > len(raw):
            raise MalformedEntry("copies that end too early")
        (size,) = _SIZE.unpack_from(raw, at + key_bytes)
        if body_at + size > len(raw):
            raise MalformedEntry(f"{size} bytes of copies, {len(raw) - body_at} found")
        found.append((raw[at : at + key_bytes], raw[body_at : body_at + size]))
        at = body_at + size
    return found


def encode_known(known: dict[bytes, Known]) -> bytes:
    """Return identities and their messages as bytes."""
    runs: list[tuple[bytes, int, int, int, int, bool]] = []
    last: tuple[bytes, int, int, int, int, bool] | None = None
    for identity, (number, enqueued_ms, is_trusted, _) in known.items():
        envelope, index = identity[:IDENTITY_BYTES], int.from_bytes(identity[IDENTITY_BYTES:])
        at_ms = _WAITS if enqueued_ms is None else enqueued_ms
        if last is not None:
            begun, first, lowest, begun_ms, count, was_trusted = last
            continues = (envelope, index, number, at_ms, is_trusted)
            if continues == (begun, first + count, lowest + count, begun_ms, was_trusted):
                last = (begun, first, lowest, begun_ms, count + 1, was_trusted)
                continue
            runs.append(last)
        last = (envelope, index, number, at_ms, 1, is_trusted)
    if last is not None:
        runs.append(last)
    return b"".join([_KNOWN.pack(*run) for run in runs])


def decode_known(raw: bytes, *, is_believed: bool) -> dict[bytes, Known]:
    """Read the bytes of `encode_known`; unless `is_believed`, no message is trusted."""
    known: dict[bytes, Known] = {}
    for envelope, first, number, at_ms, count, is_trusted in _unpacked(_KNOWN, raw):
        enqueued_ms = None if at_ms == _WAITS else at_ms
        for offset in range(count):
            identity = envelope + (first + offset).to_bytes(4, "big")
            each = Known(number + offset, enqueued_ms, bool(is_trusted) and is_believed)
            known[identity] = each
    return known


def encode_activated(activated: dict[int, Known]) -> bytes:
    """Return activated messages as bytes."""
    parts = []
    for waited_as, (number, enqueued_ms, is_trusted, _) in activated.items():
        assert enqueued_ms is not None, "what is active has its time"
        parts.append(_ACTIVATED.pack(waited_as, number, enqueued_ms, is_trusted))
    return b"".join(parts)


def decode_activated(raw: bytes, *, is_believed: bool) -> dict[int, Known]:
    """Read the bytes of `encode_activated`; unless `is_believed`, no message is trusted."""
    return {
        waited_as: Known(number, enqueued_ms, bool(is_trusted) and is_believed)
        for waited_as, number, enqueued_ms, is_trusted in _unpacked(_ACTIVATED, raw)
    }


def encode_cancelled(cancelled: set[bytes]) -> bytes:
    """Return the identities of cancels as bytes."""
    return b"".join(cancelled)


def decode_cancelled(raw: bytes) -> set[bytes]:
    """Read the bytes of `encode_cancelled`."""
    if len(raw) % IDENTITY_BYTES:
        raise MalformedEntry(f"{len(raw)} bytes of identities")
    return {raw[at : at + IDENTITY_BYTES] for at in range(0, len(raw), IDENTITY_BYTES)}


def _unpacked(form: struct.Struct, raw: bytes) -> list[tuple[Any, ...]]:
    try:
        return list(form.iter_unpack(raw))
    except struct.error as error:
        raise MalformedEntry(str(error)) from error
