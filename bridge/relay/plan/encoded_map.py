"""A section that is a map, changed without decoding: what is not touched keeps its bytes.

A value that is decoded and encoded again may come out shorter, or of another type; a signature over
the bytes would fail, and so would a client that looks for a symbol and finds a string.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from bridge.wire.amqp10.primitives import encode_compound, encode_map
from bridge.wire.mapping.fields import map_items, textual
from bridge.wire.mapping.sections import descriptor

VALUE_AT: Final = 3
"""Where the value of a section begins, behind its short descriptor."""

_SHORT_MAP: Final = 0xC1

_SIGNED: Final = frozenset((0x51, 0x61, 0x71, 0x54, 0x81, 0x55, 0x83))
_UNSIGNED: Final = frozenset((0x50, 0x60, 0x70, 0x52, 0x43, 0x80, 0x53, 0x44))
"""Constructors of whole numbers; a timestamp's is among them."""


class EncodedMap:
    """The pairs of a section.

    Args:
        section: with its short descriptor; empty for none.
        code: the section's code.

    Raises:
        MappingError: the section is no map.
    """

    __slots__ = ("_code", "_pairs", "_section")

    def __init__(self, section: bytes, code: int) -> None:
        self._section = section
        self._code = code
        self._pairs = [
            (textual(section, start, end), section[start:end], section[value_start:value_end])
            for (start, end), (value_start, value_end) in (
                map_items(section, VALUE_AT) if section else ()
            )
        ]

    @property
    def named(self) -> dict[bytes, bytes]:
        """The encoded values by the texts of their keys; the first of a name counts."""
        return self.values({name for name, _, _ in self._pairs if name is not None})

    def values(self, names: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the encoded values of some pairs, by the text of their key; the first counts."""
        found: dict[bytes, bytes] = {}
        for name, _, value in self._pairs:
            if name is not None and name in names and name not in found:
                found[name] = value
        return found

    def changed(
        self,
        *,
        drop: Collection[bytes] = (),
        put: Mapping[bytes, bytes] | None = None,
        as_key: Callable[[bytes], bytes],
    ) -> bytes:
        """Return the section without some pairs, and with others put; empty if no pair remains.

        It comes back as it is where nothing is to be done. A pair that is put takes the place of
        the first of its name, and no other of that name remains; new ones stand at the end. All
        other pairs keep their bytes and their order.

        Args:
            drop: the texts of keys whose pairs go.
            put: the text of a key -> the encoded value.
            as_key: encodes the text of a key that is new.
        """
        left = dict(put or {})
        kept: list[tuple[bytes, bytes]] = []
        is_changed = bool(left)
        for name, key, value in self._pairs:
            if name is None or not (name in drop or (put and name in put)):
                kept.append((key, value))
                continue
            is_changed = True
            if name in left:
                kept.append((key, left.pop(name)))
        if not is_changed:
            return self._section
        if len(kept) == len(self._pairs) and len(left) == len(put or ()):
            new = [(as_key(name), value) for name, value in left.items()]
            return with_pairs(self._section, self._code, new)
        kept += [(as_key(name), value) for name, value in left.items()]
        return descriptor(self._code) + encode_map(kept) if kept else b""


def with_pairs(section: bytes, code: int, pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a section with encoded pairs at its end; it has none of their names.

    Args:
        section: with its short descriptor, and known to be a whole map; empty for none.
        code: the section's code.
    """
    count, inside = 0, b""
    if section:
        is_short = section[VALUE_AT] == _SHORT_MAP
        start = VALUE_AT + (3 if is_short else 9)
        count = int.from_bytes(section[start - (1 if is_short else 4) : start], "big")
        inside = section[start:]
    added = b"".join([part for pair in pairs for part in pair])
    return descriptor(code) + encode_compound(_SHORT_MAP, count + 2 * len(pairs), inside + added)


def whole_of(encoded: bytes | None) -> int | None:
    """Return an encoded whole number or time; `None` for no value, and for any other."""
    if not encoded:
        return None
    code = encoded[0]
    if code in _SIGNED:
        return int.from_bytes(encoded[1:], "big", signed=True)
    return int.from_bytes(encoded[1:], "big") if code in _UNSIGNED else None


def text_of(encoded: bytes | None) -> str:
    """Return an encoded string, symbol or binary as text; "" for no value, and for any other."""
    found = textual(encoded, 0, len(encoded)) if encoded else None
    return "" if found is None else found.decode(errors="replace")
