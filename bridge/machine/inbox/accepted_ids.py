"""Duplicate detection: the message ids that an entity has accepted within its window.

**Theory.** A message is known by a digest of 16 bytes (`wire.digest`). Each message accepted in the
window has a row: digest, number and time. In memory the rows are in slots of an eighth of the
window, so that a whole slot is forgotten at once. A successor reads them from immutable segments in
a stream of their own; rows in no segment yet are in the journal's snapshots and in the entries
behind the last snapshot. Learning a row twice changes nothing.

    row   digest 16 bytes | number i64 | time when it was accepted i64, UTC ms
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from bridge.wire.sections import MalformedEntry

SLOTS = 8
"""Slots of the window; ids may be remembered longer than the window by one slot."""

SLOT_MS_MIN = 1_000

SEGMENT_ROWS = 1_000
"""A segment is written when so many rows are in none; a row has 32 bytes."""

SEGMENT_ROWS_MAX = 32_000
"""1 MB: far below RabbitMQ 4's largest message (16 MiB)."""

_ROW = struct.Struct(">16sqq")
_OFFSET_BITS = 27
"""A slot of the longest window (7 days) has fewer milliseconds than 2^27."""

_OFFSET = (1 << _OFFSET_BITS) - 1


class History:
    """The digests of accepted messages; times only rise, but for learned rows."""

    def __init__(self) -> None:
        self._window_ms = 0
        self._slot_ms = SLOT_MS_MIN
        self._slots: dict[int, dict[int, int]] = {}
        self._open = bytearray()

    def __len__(self) -> int:
        return sum([len(slot) for slot in self._slots.values()])

    def set_window(self, window_ms: int) -> None:
        """Change the window; a longer window does not bring back forgotten rows."""
        if window_ms == self._window_ms:
            return
        rows = [
            (digest, self._at_ms(at, value), value >> _OFFSET_BITS)
            for at, slot in self._slots.items()
            for digest, value in slot.items()
        ]
        self._window_ms = window_ms
        self._slot_ms = max(window_ms // SLOTS, SLOT_MS_MIN)
        self._slots = {}
        for digest, at_ms, number in rows:
            self._put(digest, number, at_ms)

    def find(self, digest: bytes, now_ms: int) -> int | None:
        """Return the number of the message with this digest that was accepted in the window."""
        key = int.from_bytes(digest, "big")
        for at, slot in self._slots.items():
            value = slot.get(key)
            if value is not None and now_ms - self._at_ms(at, value) < self._window_ms:
                return value >> _OFFSET_BITS
        return None

    def accept(self, digest: bytes, number: int, now_ms: int) -> None:
        """Remember a message that is accepted now."""
        if now_ms // self._slot_ms not in self._slots:
            self._forget(now_ms)
        self._put(int.from_bytes(digest, "big"), number, now_ms)
        self._open += _ROW.pack(digest, number, now_ms)

    def take_back(self, count: int) -> None:
        """Forget the last accepted messages: their command failed."""
        for _ in range(count):
            digest, _, at_ms = _ROW.unpack_from(self._open, len(self._open) - _ROW.size)
            del self._open[-_ROW.size :]
            self._slots[at_ms // self._slot_ms].pop(int.from_bytes(digest, "big"), None)

    def learn(self, raw: bytes, now_ms: int) -> None:
        """Learn the rows of a segment.

        Raises:
            MalformedEntry: the bytes are no rows.
        """
        for digest, number, at_ms in _rows(raw):
            if now_ms - at_ms < self._window_ms:
                self._put(int.from_bytes(digest, "big"), number, at_ms)

    def learn_open(self, raw: bytes) -> None:
        """Learn rows that may be in no segment yet."""
        for digest, number, at_ms in _rows(raw):
            self._put(int.from_bytes(digest, "big"), number, at_ms)
        self._open += raw

    @property
    def open(self) -> bytes:
        """The rows that may be in no segment yet."""
        return bytes(self._open)

    @property
    def next_segment(self) -> bytes:
        """The first of the open rows, as many as a segment may have."""
        return bytes(self._open[: SEGMENT_ROWS_MAX * _ROW.size])

    @property
    def is_segment_due(self) -> bool:
        """Whether the open rows are enough for a segment."""
        return len(self._open) >= SEGMENT_ROWS * _ROW.size

    def close_segment(self, size: int) -> None:
        """Drop the first bytes of the open rows: their segment is confirmed."""
        del self._open[:size]

    def _put(self, key: int, number: int, at_ms: int) -> None:
        at, offset_ms = divmod(at_ms, self._slot_ms)
        slot = self._slots.get(at)
        if slot is None:
            slot = self._slots[at] = {}
        known = slot.get(key)
        if known is None or known & _OFFSET <= offset_ms:
            slot[key] = number << _OFFSET_BITS | offset_ms

    def _at_ms(self, at: int, value: int) -> int:
        return at * self._slot_ms + (value & _OFFSET)

    def _forget(self, now_ms: int) -> None:
        """Forget the slots that are older than the window."""
        first = (now_ms - self._window_ms) // self._slot_ms
        self._slots = {at: slot for at, slot in self._slots.items() if at >= first}


def row(digest: bytes, number: int, at_ms: int) -> bytes:
    """Return one row."""
    return _ROW.pack(digest, number, at_ms)


def _rows(raw: bytes) -> Iterable[tuple[bytes, int, int]]:
    if len(raw) % _ROW.size:
        raise MalformedEntry(f"{len(raw)} bytes of accepted digests")
    return _ROW.iter_unpack(raw)
