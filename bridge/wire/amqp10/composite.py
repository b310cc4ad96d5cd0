"""Composite types (part 1, section 1.4): described lists whose fields have a name and a type.

A composite is declared as a dataclass: the annotation of a field gives its reader and writer, a
default is the value of null, and a field without a default is mandatory. Every field is written,
nulls included: the Python SDK up to 7.14 reads fields by position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from bridge.wire.amqp10 import primitives, types, writing
from bridge.wire.amqp10.errors import DecodeError, EncodeError
from bridge.wire.amqp10.types import CONSTRUCTORS, UNREADABLE, Array, Reader
from bridge.wire.amqp10.whole import MemoryAllowance, check, to_read
from bridge.wire.amqp10.writing import Writer

U8 = Annotated[int, "ubyte"]
U16 = Annotated[int, "ushort"]
U32 = Annotated[int, "uint"]
U64 = Annotated[int, "ulong"]
Bool = Annotated[bool, "boolean"]
Text = Annotated[str, "string"]
Sym = Annotated[str, "symbol"]
Syms = Annotated[tuple[str, ...], "symbols"]
"""A `multiple="true"` field of symbols: one symbol, an array of them, or null."""
Bin = Annotated[bytes, "binary"]
Millis = Annotated[int, "timestamp"]
Fields = Annotated[dict[Any, Any], "map"]
Any_ = Annotated[Any, "*"]
"""A value of any type; known composites are read as such."""

_Readers = dict[int, Reader]

_UNSIGNED: Final = ("ubyte", "ushort", "uint", "ulong")


def _symbols(read: Reader) -> Reader:
    def several(raw: bytes, at: int) -> tuple[tuple[str, ...], int]:
        value, at = read(raw, at)
        if isinstance(value, Array):
            if value.type not in ("symbol", "null"):
                raise DecodeError(f"an array of {value.type} stands where symbols are due")
            return tuple(value.items), at
        return (value,), at

    return several


def constants_of(type_name: str, default: Any) -> dict[int, Any]:
    """Return, by constructor, the values that are encoded without bytes of their own."""
    rows = [row for row in CONSTRUCTORS.values() if row.type == type_name and not row.width]
    found = {row.code: row.read(b"", 0)[0] for row in rows}
    if type_name in _UNSIGNED:
        found = {code: int(value) for code, value in found.items()}
    return {0x40: default} | found


def widths_of(type_name: str) -> dict[int, int]:
    """Return the width of an unsigned number, by constructor; it is read as a plain `int`."""
    rows = CONSTRUCTORS.values() if type_name in _UNSIGNED else ()
    return {row.code: row.width for row in rows if row.type == type_name and row.width}


def readers_of(type_name: str) -> _Readers:
    """Return the readers of a type's values, by constructor."""
    if type_name == "symbols":
        single = {code: row.read for code, row in CONSTRUCTORS.items() if row.type == "symbol"}
        arrays = {code: row.read for code, row in CONSTRUCTORS.items() if row.type == "array"}
        return {code: _symbols(read) for code, read in (single | arrays).items()}
    return {code: row.read for code, row in CONSTRUCTORS.items() if row.type == type_name}


def _write_symbols(value: tuple[str, ...]) -> bytes:
    return writing.encode(Array("symbol", tuple(value)))


def _write_any(value: Any) -> bytes:
    if type(value) in BY_CLASS:
        return encode_composite(value)
    return writing.encode(value)


FIELD_WRITERS: Final[dict[str, Writer]] = {
    "ubyte": writing.WRITERS[types.Ubyte],
    "ushort": writing.WRITERS[types.Ushort],
    "uint": primitives.encode_uint,
    "ulong": primitives.encode_ulong,
    "boolean": primitives.encode_boolean,
    "string": writing.write_string,
    "symbol": writing.write_symbol,
    "symbols": _write_symbols,
    "binary": primitives.encode_binary,
    "timestamp": writing.WRITERS[types.Timestamp],
    "map": writing.write_map,
    "*": _write_any,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a composite.

    Attributes:
        default: the value of null.
        constants: see `constants_of`.
        widths: see `widths_of`.
        readers: see `readers_of`; `None`: the field takes a value of any type.
    """

    name: str
    type: str
    is_mandatory: bool
    default: Any
    constants: dict[int, Any]
    widths: dict[int, int]
    readers: _Readers | None
    write: Writer


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a composite: its descriptor and its fields."""

    cls: type
    code: int
    symbol: str
    fields: tuple[Field, ...]
    prefix: bytes


BY_CLASS: dict[type, Layout] = {}
BY_CODE: dict[int, Layout] = {}
BY_SYMBOL: dict[str, Layout] = {}


def encode_composite(value: Any) -> bytes:
    """Return the bytes of a composite, every field in its place.

    Raises:
        EncodeError: a field's value does not fit its type.
    """
    layout = BY_CLASS[type(value)]
    parts = []
    for row in layout.fields:
        item = getattr(value, row.name)
        try:
            parts.append(b"\x40" if item is None else row.write(item))
        except EncodeError:
            raise
        except Exception as error:
            raise EncodeError(f"{layout.symbol} {row.name}: {item!r} cannot be written") from error
    return layout.prefix + primitives.encode_list(parts)


def decode_composite(raw: bytes, at: int = 0) -> tuple[Any, int]:
    """Return the composite that begins at `at`, and the position behind it.

    Raises:
        DecodeError: no composite begins there, or a field is missing, of a wrong type, or has more
            elements than its bytes may stand for.
    """
    try:
        layout, at = _layout_at(raw, at)
        return _decode_fields(layout, raw, at, is_checked=False)
    except UNREADABLE as error:
        raise DecodeError(f"the composite at byte {at} cannot be read: {error}") from None


def _layout_at(raw: bytes, at: int) -> tuple[Layout, int]:
    if raw[at] != 0x00:
        raise DecodeError(f"0x{raw[at]:02x} at byte {at} begins no described type")
    if raw[at + 1] == 0x53:
        layout, after = BY_CODE.get(raw[at + 2]), at + 3
    else:
        layout, after = _layout_named(raw, at)
    if layout is None:
        raise DecodeError(f"the descriptor at byte {at} is of no known composite")
    return layout, after


_DESCRIPTOR_BYTES: Final = 64
"""A descriptor is a number or a short symbol."""


def _layout_named(raw: bytes, at: int) -> tuple[Layout | None, int]:
    after = check(raw, at + 1, len(raw), to_read(_DESCRIPTOR_BYTES))
    descriptor, _ = types.read_value(raw, at + 1)
    if isinstance(descriptor, types.Symbol):
        return BY_SYMBOL.get(descriptor), after
    if isinstance(descriptor, types.Ulong):
        return BY_CODE.get(descriptor), after
    return None, after


def _decode_fields(layout: Layout, raw: bytes, at: int, *, is_checked: bool) -> tuple[Any, int]:
    code, begin = raw[at], at
    if code == 0xC0:
        size = raw[at + 1]
        end, count, at = at + 2 + size, raw[at + 2], at + 3
    elif code == 0xD0:
        end = at + 5 + int.from_bytes(raw[at + 1 : at + 5], "big")
        count, at = int.from_bytes(raw[at + 5 : at + 9], "big"), at + 9
    elif code == 0x45:
        count, at = 0, at + 1
        end = at
    else:
        raise DecodeError(f"{layout.symbol}: 0x{code:02x} at byte {at} is no list")
    if end > len(raw) or count > len(layout.fields) or at > end:
        raise DecodeError(f"{layout.symbol}: {count} fields up to byte {end} are cut short")
    values = []
    allowance: MemoryAllowance | None = None
    for row in layout.fields[:count]:
        code = raw[at]
        if code in row.constants:
            values.append(row.constants[code])
            at += 1
            continue
        if code in row.widths:
            start = at + 1
            at = start + row.widths[code]
            values.append(int.from_bytes(raw[start:at], "big"))
            continue
        if not is_checked and (code == 0x00 or code >= 0xC0) and not _is_empty_list(raw, at):
            if allowance is None:
                allowance = to_read(end - begin)
            check(raw, at, end, allowance)
        if row.readers is None:
            value, at = read_any(raw, at)
        else:
            read = row.readers.get(code)
            if read is None:
                raise DecodeError(
                    f"{layout.symbol}: {row.name} is no {row.type} (0x{code:02x} at byte {at})"
                )
            value, at = read(raw, at + 1)
        values.append(value)
    if at != end:
        raise DecodeError(f"{layout.symbol}: the fields end at byte {at}, not at byte {end}")
    for row in layout.fields[count:]:
        values.append(row.default)
    for value, row in zip(values, layout.fields, strict=True):
        if value is None and row.is_mandatory:
            raise DecodeError(f"{layout.symbol}: the mandatory field {row.name} is not there")
    return layout.cls(*values), end


def _is_empty_list(raw: bytes, at: int) -> bool:
    """Whether a described list without fields stands here, as accepted and released do."""
    return raw[at] == 0x00 and raw[at + 1] == 0x53 and raw[at + 3] == 0x45


def read_any(raw: bytes, at: int) -> tuple[Any, int]:
    """Return the value at `at`, and the position behind it; `whole.check` must have passed it.

    A known composite is read as an instance of its class, any other value as by `types.decode`.
    """
    if raw[at] == 0x00:
        layout = BY_CODE.get(raw[at + 2]) if raw[at + 1] == 0x53 else None
        after = at + 3
        if layout is None:
            layout, after = _layout_named(raw, at)
        if layout is not None:
            return _decode_fields(layout, raw, after, is_checked=True)
    return types.read_value(raw, at)
