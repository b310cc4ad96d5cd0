"""Scalar types of AMQP 1.0: their values in JSON, and back; `typed_values` has the rest."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn
from uuid import UUID

from bridge.model.decimals import text_of
from bridge.model.duration import TIME_MAX_MS, TIME_MIN_MS, instant_text
from bridge.wire.amqp10 import scalars
from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.errors import EncodeError

Json = Any
"""What `json.loads` returns."""

EXACT_IN_JSON = 2**53 - 1
"""Whole numbers beyond it are written as text: many readers of JSON have doubles alone."""

UINT_MAX = 2**32 - 1
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class ValueRefused(ValueError):
    """Error for JSON that stands for no AMQP value; the text says where and why."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(f"{path}: {text}" if path else text)
        self.text = text
        self.path = path

    def within(self, name: str) -> ValueRefused:
        """Return the error with a name in front of its path."""
        glue = "" if not self.path or self.path.startswith("[") else "."
        return ValueRefused(self.text, f"{name}{glue}{self.path}")


@dataclass(frozen=True, slots=True)
class _Type:
    """A scalar type: its value in Python to JSON, and back."""

    to_json: Callable[[Any], Json]
    from_json: Callable[[Json], Any]


def refuse(text: str) -> NoReturn:
    """Raise ValueRefused."""
    raise ValueRefused(text)


def shown(value: Json) -> str:
    """Return JSON for a sentence, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _whole(name: str, kind: type[int], low: int, high: int, form: str = "") -> _Type:
    form = form or f", a whole number from {low} to {high}"

    def from_json(value: Json) -> int:
        number = value
        if isinstance(value, str):
            try:
                number = int(value) if len(value) <= 20 and "_" not in value else None
            except ValueError:
                number = None
        if type(number) is not int or not low <= number <= high:
            refuse(f"{shown(value)} is no {name}{form}")
        return kind(number)

    def to_json(value: int) -> Json:
        return int(value) if abs(value) <= EXACT_IN_JSON else str(int(value))

    return _Type(to_json, from_json)


_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "-0.0": -0.0}


def _real(name: str, kind: type[float]) -> _Type:
    def from_json(value: Json) -> float:
        if isinstance(value, str) and value in _SPECIAL:
            return kind(_SPECIAL[value])
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse(f"{shown(value)} is no {name}, a number or one of {', '.join(_SPECIAL)}")
        try:
            number = kind(value)
        except OverflowError:
            number = kind(math.inf)
        if not math.isfinite(number):
            refuse(f"{shown(value)} is beyond a {name}")
        return number

    def to_json(value: float) -> Json:
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return "-0.0" if value == 0 and math.copysign(1, value) < 0 else float(value)

    return _Type(to_json, from_json)


def _text(name: str, kind: type[str], codec: str) -> _Type:
    def from_json(value: Json) -> str:
        if not isinstance(value, str):
            refuse(f"{shown(value)} is no {name}: it is a text in quotes")
        try:
            value.encode(codec)
        except UnicodeEncodeError:
            refuse(f"{shown(value)} has characters that a {name} does not take ({codec})")
        return kind(value)

    return _Type(str, from_json)


def _char(value: Json) -> str:
    if not isinstance(value, str) or len(value) != 1 or 0xD800 <= ord(value) <= 0xDFFF:
        refuse(f"{shown(value)} is no char: it is one character in quotes")
    return scalars.Char(value)


def binary_of(value: Json) -> bytes:
    """Return the bytes of a text in Base64.

    Raises:
        ValueRefused: it is none.
    """
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        pass
    refuse(f"{shown(value)} is no Base64 in quotes")


def base64_of(raw: bytes) -> str:
    """Return bytes in Base64."""
    return base64.b64encode(raw).decode()


def _hexadecimal(name: str, kind: type[bytes], size: int) -> _Type:
    def from_json(value: Json) -> bytes:
        try:
            raw = bytes.fromhex(value) if isinstance(value, str) else b""
        except ValueError:
            raw = b""
        if len(raw) != size:
            refuse(f"{shown(value)} is no {name}: it is {size} bytes in hexadecimal digits")
        return kind(raw)

    return _Type(lambda value: value.hex(), from_json)


def _boolean(value: Json) -> bool:
    if not isinstance(value, bool):
        refuse(f"{shown(value)} is no boolean: it is true or false")
    return value


def _nothing(value: Json) -> None:
    if value is not None:
        refuse(f"{shown(value)} is not null")


def _uuid(value: Json) -> UUID:
    try:
        if isinstance(value, str):
            return UUID(value)
    except ValueError:
        pass
    refuse(f"{shown(value)} is no uuid")


def _time_text(value_ms: int) -> Json:
    return instant_text(value_ms) if TIME_MIN_MS <= value_ms <= TIME_MAX_MS else str(int(value_ms))


def time_ms_of(value: Json) -> int:
    """Return the UTC milliseconds of a time: a text of ISO 8601 with its zone, or the milliseconds.

    Raises:
        ValueRefused: it is none.
    """
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return int(_WHOLE_MS.from_json(value))
        if found.tzinfo is None:
            refuse(f"{shown(value)} has no zone: write Z or an offset such as +01:00 behind it")
        return (found - _EPOCH) // _MILLISECOND
    return int(_WHOLE_MS.from_json(value))


_WHOLE_MS = _whole(
    *("timestamp", scalars.Timestamp, LONG_MIN, LONG_MAX),
    form=" (2026-11-27T09:00:00Z, or milliseconds since 1970)",
)


def _decimal(value: Json) -> Decimal:
    try:
        if isinstance(value, str):
            found = Decimal(value)
            encode_decimal(found)
            return found
    except (InvalidOperation, EncodeError):
        pass
    refuse(f"{shown(value)} is no decimal: it is a number of 96 bits and 28 places, in quotes")


SCALARS: Final[dict[str, _Type]] = {
    "null": _Type(lambda value: None, _nothing),
    "boolean": _Type(bool, _boolean),
    "ubyte": _whole("ubyte", scalars.Ubyte, 0, 2**8 - 1),
    "ushort": _whole("ushort", scalars.Ushort, 0, 2**16 - 1),
    "uint": _whole("uint", scalars.Uint, 0, UINT_MAX),
    "ulong": _whole("ulong", scalars.Ulong, 0, 2**64 - 1),
    "byte": _whole("byte", scalars.Byte, -(2**7), 2**7 - 1),
    "short": _whole("short", scalars.Short, -(2**15), 2**15 - 1),
    "int": _whole("int", scalars.Int, INT_MIN, INT_MAX),
    "long": _whole("long", scalars.Long, LONG_MIN, LONG_MAX),
    "float": _real("float", scalars.Float),
    "double": _real("double", float),
    "decimal": _Type(text_of, _decimal),
    "decimal32": _hexadecimal("decimal32", scalars.Decimal32, 4),
    "decimal64": _hexadecimal("decimal64", scalars.Decimal64, 8),
    "decimal128": _hexadecimal("decimal128", scalars.Decimal128, 16),
    "char": _Type(str, _char),
    "timestamp": _Type(_time_text, lambda value: scalars.Timestamp(time_ms_of(value))),
    "uuid": _Type(str, _uuid),
    "binary": _Type(base64_of, binary_of),
    "string": _text("string", str, "utf-8"),
    "symbol": _text("symbol", scalars.Symbol, "ascii"),
}
"""The types whose values hold no others; `decimal` is a decimal128 that .NET's decimal holds."""
