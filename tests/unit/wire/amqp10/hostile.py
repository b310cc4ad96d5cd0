"""Values of hostile structure, as bytes: for the codec's tests and for the fuzz run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

HASH_MODULUS: Final = 2**61 - 1
"""Python's hash of a number is its remainder by this (`sys.hash_info.modulus`)."""


def compound(code: int, count: int, body: bytes) -> bytes:
    """Return a list32, map32 or array32 that claims `count` elements."""
    return bytes((code,)) + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def nested_lists(depth: int) -> bytes:
    """Return a list in a list in a list, whole at every level."""
    raw = b"\x45"
    for _ in range(depth):
        raw = compound(0xD0, 1, raw)
    return raw


def nested_maps(depth: int) -> bytes:
    """Return maps, each the value of the one around it."""
    raw = b"\x40"
    for _ in range(depth):
        raw = compound(0xD1, 2, b"\xa1\x01k" + raw)
    return raw


def nested_arrays(depth: int) -> bytes:
    """Return arrays of one array each, the constructor of the next in front of each."""
    raw = (4).to_bytes(4, "big") + bytes(4)
    for _ in range(depth):
        raw = (len(raw) + 5).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\xf0" + raw
    return b"\xf0" + raw


def nested_descriptors(depth: int) -> bytes:
    """Return descriptors that are described themselves."""
    return b"\x00" * depth + b"\x43" * (depth + 1)


def described_in_described(depth: int) -> bytes:
    """Return values that are described, over and over."""
    return b"\x00\x43" * depth + b"\x43"


def zero_width(count: int, code: int = 0x40) -> bytes:
    """Return an array of `count` elements without a byte."""
    return compound(0xF0, count, bytes((code,)))


def zero_width_arrays(arrays: int, count: int, code: int = 0x40) -> bytes:
    """Return an array of such arrays, ten bytes each."""
    inner = (5).to_bytes(4, "big") + count.to_bytes(4, "big") + bytes((code,))
    return compound(0xF0, arrays, b"\xf0" + inner * arrays)


def list_of_zero_width_arrays(arrays: int, count: int, code: int = 0x40) -> bytes:
    """Return a list of such arrays."""
    return compound(0xD0, arrays, zero_width(count, code) * arrays)


def empty_lists(count: int) -> bytes:
    """Return a list of lists without elements: a byte each on the wire, 72 in memory."""
    return compound(0xD0, count, b"\x45" * count)


def alternating(count: int) -> bytes:
    """Return a list of one-byte constants of which no two neighbours are of one kind."""
    return compound(0xD0, count, (b"\x41\x42" * count)[:count])


def equal_uuids(count: int, value: bytes = b"\x40") -> bytes:
    """Return a map whose keys are uuids of one and the same hash."""
    keys = (UUID(int=7 + number * HASH_MODULUS).bytes for number in range(count))
    return compound(0xD1, 2 * count, b"".join(b"\x98" + key + value for key in keys))


def equal_longs(count: int, value: bytes = b"\x40") -> bytes:
    """Return a map whose keys are numbers that a dict of any size puts into few places."""
    keys = ((number << 40).to_bytes(8, "big") for number in range(count))
    return compound(0xD1, 2 * count, b"".join(b"\x80" + key + value for key in keys))


def equal_described(count: int) -> bytes:
    """Return a map whose keys are described values."""
    keys = (b"\x00\x43\x80" + number.to_bytes(8, "big") for number in range(count))
    return compound(0xD1, 2 * count, b"".join(key + b"\x40" for key in keys))


def one_key(count: int) -> bytes:
    """Return a map that has one key many times."""
    return compound(0xD1, 2 * count, b"\xa1\x01k\x40" * count)


def tiny_pairs(count: int) -> bytes:
    """Return a map of the shortest pairs that differ: six bytes each."""
    keys = (b"\xa1\x03" + number.to_bytes(3, "big") for number in range(count))
    pairs = (bytes(octet & 0x7F for octet in key[2:]) for key in keys)
    return compound(0xD1, 2 * count, b"".join(b"\xa1\x03" + key + b"\x40" for key in pairs))


def lying_count(code: int = 0xD0) -> bytes:
    """Return a list, map or array that claims more elements than it holds."""
    return compound(code, 6, b"\x40\x40")


def lying_size(code: int = 0xD0) -> bytes:
    """Return a list, map or array that claims more bytes than there are."""
    return bytes((code,)) + (0x7FFFFFFF).to_bytes(4, "big") + (2).to_bytes(4, "big") + b"\x40\x40"


def lying_text(code: int) -> bytes:
    """Return a string, symbol or binary that claims more bytes than there are."""
    return bytes((code,)) + (0x7FFFFFFF).to_bytes(4, "big") + b"text"


SHAPES: Final[dict[str, Callable[[int], bytes]]] = {
    "nested lists": lambda size: nested_lists(size // 9),
    "nested maps": lambda size: nested_maps(size // 12),
    "nested arrays": lambda size: nested_arrays(size // 9),
    "nested descriptors": lambda size: nested_descriptors(size // 2),
    "described in described": lambda size: described_in_described(size // 2),
    "zero-width nulls": lambda size: list_of_zero_width_arrays(max(size // 10, 1), 65_536),
    "zero-width true": lambda size: list_of_zero_width_arrays(max(size // 10, 1), 65_536, 0x41),
    "zero-width lists": lambda size: list_of_zero_width_arrays(max(size // 10, 1), 4_096, 0x45),
    "zero-width in arrays": lambda size: zero_width_arrays(max(size // 9, 1), 65_536),
    "four billion nulls": lambda size: zero_width(2**32 - 1),
    "empty lists": empty_lists,
    "alternating constants": alternating,
    "uuids of one hash": lambda size: equal_uuids(size // 18),
    "numbers of one place": lambda size: equal_longs(size // 10),
    "described keys": lambda size: equal_described(size // 12),
    "one key": lambda size: one_key(size // 4),
    "tiny pairs": lambda size: tiny_pairs(size // 6),
    "a list that claims more": lambda size: lying_count(0xD0),
    "a map that claims more": lambda size: lying_count(0xD1),
    "an array that claims more": lambda size: lying_count(0xF0) + bytes(2),
    "a list beyond the end": lambda size: lying_size(0xD0),
    "an array beyond the end": lambda size: lying_size(0xF0),
    "a string beyond the end": lambda size: lying_text(0xB1),
    "a symbol beyond the end": lambda size: lying_text(0xB3),
    "a binary beyond the end": lambda size: lying_text(0xB0),
    "a character beyond Unicode": lambda size: b"\x73\x7f\xff\xff\xff",
    "booleans beyond true": lambda size: compound(0xF0, size, b"\x56" + b"\x02" * size),
    "characters beyond Unicode": lambda size: compound(
        0xF0, size // 4, b"\x73" + b"\xff" * (size // 4 * 4)
    ),
}
"""Name -> what makes about so many bytes of it."""


def any_shape(generator: random.Random, size: int) -> tuple[str, bytes]:
    """Return one of them, and its name."""
    name = generator.choice(list(SHAPES))
    return name, SHAPES[name](size)
