"""The check that bytes are a whole AMQP 1.0 value, before any value is built from them.

One walk over the bytes finds every fault that a reader would meet: a wrong size or count, malformed
text, an unknown constructor. It also refuses values that nest too deeply, and more elements than so
few bytes may stand for: an array of nulls claims four billion elements in ten bytes. Readers
recurse without checks of their own and rely on this one.
"""

from __future__ import annotations

from typing import Final

from bridge.wire.amqp10.errors import DecodeError

DEPTH_MAX: Final = 64
"""How deep values may nest, as in AMQP 0-9-1 tables: above any use, below any stack's end."""

_SIZED8, _SIZED32, _COMPOUND8, _COMPOUND32, _ARRAY8, _ARRAY32, _DESCRIBED, _UNKNOWN = range(17, 25)


def _kinds() -> bytes:
    kinds = bytearray([_UNKNOWN] * 256)
    widths = {
        0: (0x40, 0x41, 0x42, 0x43, 0x44, 0x45),
        1: (0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56),
        2: (0x60, 0x61),
        4: (0x70, 0x71, 0x72, 0x73, 0x74),
        8: (0x80, 0x81, 0x82, 0x83, 0x84),
        16: (0x94, 0x98),
        _SIZED8: (0xA0, 0xA1, 0xA3),
        _SIZED32: (0xB0, 0xB1, 0xB3),
        _COMPOUND8: (0xC0, 0xC1),
        _COMPOUND32: (0xD0, 0xD1),
        _ARRAY8: (0xE0,),
        _ARRAY32: (0xF0,),
        _DESCRIBED: (0x00,),
    }
    for kind, codes in widths.items():
        for code in codes:
            kinds[code] = kind
    return bytes(kinds)


_KIND: Final = _kinds()
"""Constructor -> its width in bytes up to 16, or how it says its own size."""

_SCALAR_COST: Final = 64
_CONSTANT_COST: Final = 32
_POINTER_COST: Final = 8
_COMPOUND_COST: Final = 80
_WIDE_COST: Final = 120
_UUID_KEY_COST: Final = 96
"""Of a uuid in a map: Python's are slow to make, and a key is made twice."""
_RUN_MIN: Final = 16


class MemoryAllowance:
    """The memory that all values of one frame or one message may take together.

    Attributes:
        left: the bytes that are left; each value takes off an estimate of its size in Python.
        is_stored: no Python values are built: the costs stand for the time of the walk.
        bare_arrays: the count of empty arrays without the constructor that AMQP 1.0 demands.
        has_constants: there is an array of constants, whose elements have no bytes.
    """

    def __init__(self, left: int, *, is_stored: bool = False) -> None:
        self.left = left
        self.is_stored = is_stored
        self.bare_arrays = 0
        self.has_constants = False

    def charge(self, cost: int) -> None:
        """Take off a cost.

        Raises:
            DecodeError: nothing is left.
        """
        self.left -= cost
        if self.left < 0:
            raise DecodeError("there are more elements than so few bytes may stand for")


def to_read(size_bytes: int) -> MemoryAllowance:
    """Return the allowance for values read from `size_bytes`: eight times as much, and 16 KiB."""
    return MemoryAllowance(16_384 + 8 * size_bytes)


def to_store(size_bytes: int) -> MemoryAllowance:
    """Return the allowance for a message of `size_bytes` that is stored without being decoded.

    A list of numbers of two bytes each stays below the allowance at any length.
    """
    return MemoryAllowance(1_048_576 + 24 * size_bytes, is_stored=True)


def check(raw: bytes, at: int, limit: int, allowance: MemoryAllowance, depth: int = 0) -> int:
    """Return the position behind the value that begins at `at` and must end before `limit`.

    Raises:
        DecodeError: the value is not whole, nests too deeply, or claims too many elements.
    """
    if at >= limit:
        raise _cut_short(at)
    code = raw[at]
    kind = _KIND[code]
    start = at + 1
    if kind <= 16:
        end = start + kind
        if end > limit:
            raise _cut_short(at)
        if code == 0x56 or code == 0x73:
            _check_octets(raw, code, start, end)
        allowance.charge(_SCALAR_COST if kind or code == 0x45 else _CONSTANT_COST)
        return end
    if kind in (_SIZED8, _SIZED32):
        return _check_sized(raw, code, start, limit, allowance)
    if kind == _UNKNOWN:
        raise DecodeError(f"0x{code:02x} at byte {at} is no AMQP 1.0 constructor")
    if kind == _DESCRIBED:
        _check_depth(depth, at)
        _check_descriptor(raw, start, limit, allowance)
        allowance.charge(_SCALAR_COST)
        start = check(raw, start, limit, allowance, depth + 1)
        return check(raw, start, limit, allowance, depth + 1)
    return _check_compound(raw, code, start, limit, allowance, depth)


def plain_items(raw: bytes, at: int) -> list[tuple[int, int]] | None:
    """Return start and end of each item of a short list or map at `at`, if it is plainly valid.

    A plainly valid value passes `check`, and holds only short ASCII text, short binaries and
    numbers, as most do: one walk both checks it and takes it apart. The nulls at the end of a list
    are left out.

    `None` means that the value may be valid or not: the caller must use `check`.
    """
    start = at + 3
    if start > len(raw):
        return None
    end = at + 2 + raw[at + 1]
    count = raw[at + 2]
    if end > len(raw):
        return None
    is_map = raw[at] == 0xC1
    if is_map and count % 2:
        return None
    items: list[tuple[int, int]] = []
    at = start
    for index in range(count):
        if at >= end:
            return None
        code = raw[at]
        if code == 0x40 and not is_map and raw.count(b"\x40", at, end) == count - index == end - at:
            return items
        kind = _KIND[code]
        if kind == _SIZED8 and at + 1 < end:
            reached = at + 2 + raw[at + 1]
            if code != 0xA0 and not raw[at + 2 : reached].isascii():
                return None
        elif kind <= 16 and code != 0x56 and code != 0x73 and code != 0x45:
            reached = at + 1 + kind
        else:
            return None
        if reached > end:
            return None
        items.append((at, reached))
        at = reached
    return items if at == end else None


def _cut_short(at: int) -> DecodeError:
    return DecodeError(f"the value at byte {at} is cut short")


def _check_depth(depth: int, at: int) -> None:
    if depth >= DEPTH_MAX:
        raise DecodeError(f"the value at byte {at} nests deeper than {DEPTH_MAX}")


def _check_descriptor(raw: bytes, at: int, limit: int, allowance: MemoryAllowance) -> None:
    """Refuse a descriptor that stops a message's reader.

    AMQP 1.0 reserves all but symbols and ulongs.
    """
    is_bad = at < limit and (raw[at] >= 0xC0 or raw[at] in _NO_DESCRIPTORS)
    if is_bad and allowance.is_stored:
        raise DecodeError(f"0x{raw[at]:02x} at byte {at} is no descriptor")


_NO_DESCRIPTORS: Final = b"\x00\x45\x73\x74\x84\x94"


def _check_octets(raw: bytes, code: int, start: int, end: int) -> None:
    """Check the octets of booleans (0x56) or characters, which need not be valid."""
    if code == 0x56:
        if raw[start:end].translate(None, b"\x00\x01"):
            raise DecodeError(f"an octet behind byte {start} is no boolean")
        return
    for at in range(start, end, 4):
        point = int.from_bytes(raw[at : at + 4], "big")
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise DecodeError(f"U+{point:X} at byte {at} is no Unicode character")


def _check_sized(raw: bytes, code: int, at: int, limit: int, allowance: MemoryAllowance) -> int:
    """Check a binary, string or symbol behind its constructor."""
    if code < 0xB0:
        start = at + 1
        if start > limit:
            raise _cut_short(at)
        end = start + raw[at]
    else:
        start = at + 4
        if start > limit:
            raise _cut_short(at)
        end = start + int.from_bytes(raw[at:start], "big")
    if end > limit:
        raise _cut_short(at)
    allowance.charge(_SCALAR_COST if allowance.is_stored else 96 + end - start)
    if code & 0x0F:
        piece = raw[start:end]
        if not piece.isascii():
            if code & 0x0F == 3:
                raise DecodeError(f"the symbol at byte {at} is no ASCII")
            try:
                piece.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DecodeError(f"the string at byte {at} is no UTF-8: {error}") from None
    return end


def _check_compound(
    raw: bytes, code: int, at: int, limit: int, allowance: MemoryAllowance, depth: int
) -> int:
    """Check a list, map or array behind its constructor."""
    _check_depth(depth, at)
    width = 4 if code & 0x10 else 1
    start = at + 2 * width
    if start > limit:
        raise _cut_short(at)
    size = int.from_bytes(raw[at : at + width], "big")
    count = int.from_bytes(raw[at + width : start], "big")
    end = at + width + size
    if size < width or end > limit:
        raise _cut_short(at)
    allowance.charge(_COMPOUND_COST)
    if code >= 0xE0:
        _check_elements(raw, start, end, count, allowance, depth + 1)
        return end
    if count > end - start:
        raise DecodeError(f"{count} elements at byte {start} do not fit into {end - start} bytes")
    is_map = code & 0x0F == 1
    if is_map and count % 2:
        raise DecodeError(f"the map at byte {at} has a key without a value")
    if not is_map and count >= _RUN_MIN and is_run(raw, start, end, count):
        cost = _SCALAR_COST if _KIND[raw[start]] else _CONSTANT_COST
        allowance.charge((_POINTER_COST if allowance.is_stored else cost) * count)
        return end
    reached = _check_items(raw, start, end, count, allowance, depth + 1, is_map)
    if reached != end:
        raise DecodeError(f"the elements end at byte {reached}, not at byte {end}")
    return end


def _check_items(
    raw: bytes,
    at: int,
    end: int,
    count: int,
    allowance: MemoryAllowance,
    depth: int,
    is_map: bool,
) -> int:
    """Check the items of a list or map; the common types without a call for each item."""
    allowance.charge(count * (_SCALAR_COST if is_map else _CONSTANT_COST))
    more_cost = 0
    for index in range(count):
        if at >= end:
            raise _cut_short(at)
        code = raw[at]
        kind = _KIND[code]
        if kind == _SIZED8 and at + 1 < end:
            start = at + 2
            reached = start + raw[at + 1]
            if reached <= end and (code == 0xA0 or raw[start:reached].isascii()):
                more_cost += _CONSTANT_COST if allowance.is_stored else _SCALAR_COST + reached - at
                at = reached
                continue
        elif kind <= 16 and code != 0x56 and code != 0x73 and code != 0x45:
            at += 1 + kind
            if kind:
                more_cost += _UUID_KEY_COST if is_map and kind == 16 else _CONSTANT_COST
            if at > end:
                raise _cut_short(at)
            continue
        if is_map and index % 2 == 0 and (code >= 0xC0 or code == 0x00 or code == 0x45):
            raise DecodeError(f"the key at byte {at} is a list, a map, an array or described")
        at = check(raw, at, end, allowance, depth)
    allowance.charge(more_cost)
    return at


def is_run(raw: bytes, start: int, end: int, count: int) -> bool:
    """Return whether the items of a list, which begin at `start`, are numbers of one kind.

    Constants, too: none of them needs a check of its own.
    """
    code = raw[start]
    width = _KIND[code]
    return (
        width <= 16
        and code not in (0x56, 0x73, 0x45)
        and count * (width + 1) == end - start
        and raw[start : end : width + 1] == bytes((code,)) * count
    )


def _check_elements(
    raw: bytes, at: int, end: int, count: int, allowance: MemoryAllowance, depth: int
) -> None:
    """Check an array: first the constructor that its elements share, then the elements."""
    start = at
    if at == end and not count:
        allowance.bare_arrays += 1  # as the Python SDK writes it
        return
    if at < end and raw[at] == 0x00:
        _check_descriptor(raw, at + 1, end, allowance)
        at = check(raw, at + 1, end, allowance, depth)
    if at >= end:
        raise _cut_short(at)
    code = raw[at]
    kind = _KIND[code]
    at += 1
    if kind <= 16:
        if kind * count != end - at:
            raise DecodeError(f"{count} elements at byte {at} do not fit into {end - at} bytes")
        allowance.charge(count * _element_cost(code, kind, allowance.is_stored))
        if not kind and count:
            allowance.has_constants = True
        if code == 0x56 or code == 0x73:
            _check_octets(raw, code, at, end)
        return
    if kind >= _DESCRIBED:
        raise DecodeError(f"0x{code:02x} at byte {at - 1} is no constructor of an array")
    if count > end - at:
        raise DecodeError(f"{count} elements at byte {at} do not fit into {end - at} bytes")
    bare_arrays = allowance.bare_arrays
    for _ in range(count):
        if kind in (_SIZED8, _SIZED32):
            at = _check_sized(raw, code, at, end, allowance)
        else:
            at = _check_compound(raw, code, at, end, allowance, depth)
    if allowance.is_stored and allowance.bare_arrays > bare_arrays:
        raise DecodeError(f"an empty array behind byte {start} has no constructor")
    if at != end:
        raise DecodeError(f"the elements end at byte {at}, not at byte {end}")


def _element_cost(code: int, width: int, is_stored: bool) -> int:
    if code == 0x45:
        return _COMPOUND_COST
    if not width or is_stored:
        return _POINTER_COST
    return _WIDE_COST if width > 8 or code in (0x74, 0x84, 0x73) else 40
