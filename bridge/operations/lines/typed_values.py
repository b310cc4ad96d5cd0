"""AMQP 1.0 values in JSON, with their types. docs/message-lines.md has the forms for users.

JSON's own types stand for the most frequent ones: a string is a string, a number with a fraction a
double, a whole number an int (a long beyond 32 bits), an array a list. Every other value is an
object of one key, the name of its type: `{"long": 5}`. Values are read from their bytes, and
written to bytes, without a Python value in between: two keys of a map that are equal in Python
(1 and 1.0) are two keys.

What survives the way to JSON and back is the value with its type. What does not: which of several
encodings of the same value the sender chose, and the payload of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from bridge.model.decimals import text_of
from bridge.operations.lines.scalar_values import (
    INT_MAX,
    INT_MIN,
    SCALARS,
    Json,
    ValueRefused,
    base64_of,
    binary_of,
    refuse,
    shown,
)
from bridge.wire.amqp10.decimals import decode_decimal, encode_decimal
from bridge.wire.amqp10.errors import DecodeError, EncodeError
from bridge.wire.amqp10.primitives import encode_list, encode_map
from bridge.wire.amqp10.types import CONSTRUCTORS, Array, read_value
from bridge.wire.amqp10.whole import check, to_store
from bridge.wire.amqp10.writing import encode
from bridge.wire.mapping.fields import MappingError, compound_items, map_items, skip_value

_BARE = frozenset({"null", "boolean", "int", "string"})


def json_of(raw: bytes, start: int = 0) -> Json:
    """Return the JSON of the encoded value at `start`.

    Bytes that are no whole value, and values that JSON has no form for here (an array of lists),
    are given as `{"amqp": Base64}`.
    """
    try:
        end = check(raw, start, len(raw), to_store(len(raw)))
    except DecodeError:
        return {"amqp": base64_of(raw[start:])}
    return _json_of(raw, start, end)


def _json_of(raw: bytes, start: int, end: int) -> Json:
    try:
        if raw[start] == 0x00:
            inner = skip_value(raw, start + 1)
            return {"described": [_json_of(raw, start + 1, inner), _json_of(raw, inner, end)]}
        kind = CONSTRUCTORS[raw[start]].type
        if kind == "list":
            return [_json_of(raw, *span) for span in compound_items(raw, start)]
        if kind == "map":
            return {"map": _map_json(raw, start)}
    except MappingError:  # more elements than are taken apart
        return {"amqp": base64_of(raw[start:end])}
    value = read_value(raw, start)[0]
    if isinstance(value, Array):
        return _array_json(value, raw[start:end])
    name, payload = payload_of(kind, value)
    if name in _BARE or (name == "double" and isinstance(payload, float) and payload % 1):
        return payload
    return {name: payload}


def payload_of(kind: str, value: Any) -> tuple[str, Json]:
    """Return the name of a scalar's type, and the value without it."""
    if kind == "decimal128":
        found = decode_decimal(b"\x94" + value)
        if found is not None and encode_decimal(found)[1:] == value:
            return "decimal", text_of(found)
    return kind, SCALARS[kind].to_json(value)


def _map_json(raw: bytes, start: int) -> Json:
    """Return an object if all keys are strings and no two are equal, else a list of pairs."""
    pairs = map_items(raw, start)
    if all(raw[key[0]] in (0xA1, 0xB1) for key, _ in pairs):
        named = {read_value(raw, key[0])[0]: _json_of(raw, *value) for key, value in pairs}
        if len(named) == len(pairs):
            return named
    return [[_json_of(raw, *key), _json_of(raw, *value)] for key, value in pairs]


def _array_json(array: Array, raw: bytes) -> Json:
    if array.descriptor is not None or array.type not in SCALARS:
        return {"amqp": base64_of(raw)}
    to_json = SCALARS[array.type].to_json
    return {"array": {"type": array.type, "items": [to_json(item) for item in array.items]}}


def bytes_of(value: Json) -> bytes:
    """Return the encoded value of JSON.

    Raises:
        ValueRefused: it stands for no value.
    """
    raw = _bytes_of(value)
    try:
        check(raw, 0, len(raw), to_store(len(raw)))
    except DecodeError as error:
        raise ValueRefused(f"the value cannot be sent: {error}") from None
    return raw


def _bytes_of(value: Json) -> bytes:
    match value:
        case None | bool():
            return encode(value)
        case str():
            return scalar_bytes("string", value)
        case int():
            return scalar_bytes("int" if INT_MIN <= value <= INT_MAX else "long", value)
        case float():
            return scalar_bytes("double", value)
        case list():
            return encode_list(_several(value))
    if len(value) != 1:
        refuse(
            f'an object has one key here, the name of a type, as in {{"long": 5}}; a map is '
            f'{{"map": {shown(value)}}}'
        )
    ((name, inner),) = value.items()
    if name in SCALARS:
        return scalar_bytes(name, inner)
    read = _COMPOUNDS.get(name)
    if read is None:
        refuse(f"there is no type {name!r}; there are {', '.join((*SCALARS, *_COMPOUNDS))}")
    return read(inner)


def scalar_bytes(kind: str, payload: Json) -> bytes:
    """Return the encoded value of a type's payload; ValueRefused if it is none."""
    value = SCALARS[kind].from_json(payload)
    try:
        return encode(value)
    except EncodeError:
        refuse(f"{shown(payload)} is beyond a {kind}")


def _several(values: Iterable[Json]) -> list[bytes]:
    found = []
    for at, each in enumerate(values):
        try:
            found.append(_bytes_of(each))
        except ValueRefused as error:
            raise error.within(f"[{at}]") from None
    return found


def _list_bytes(value: Json) -> bytes:
    if not isinstance(value, list):
        refuse(f"{shown(value)} is no list: it is an array")
    return encode_list(_several(value))


def pairs_bytes(value: Json) -> bytes:
    """Return the encoded map of an object, or of a list of pairs; ValueRefused if it is none."""
    if isinstance(value, dict):
        return encode_map(
            [(scalar_bytes("string", name), _named(name, item)) for name, item in value.items()]
        )
    if not isinstance(value, list) or not all(
        isinstance(each, list) and len(each) == 2 for each in value
    ):
        refuse(f"{shown(value)} is no map: it is an object, or an array of pairs")
    pairs = [_several(each) for each in value]
    if len({key for key, _ in pairs}) < len(pairs):
        refuse("a key of the map stands there twice")
    return encode_map([(key, item) for key, item in pairs])


def _named(name: str, value: Json) -> bytes:
    try:
        return _bytes_of(value)
    except ValueRefused as error:
        raise error.within(name) from None


def _array_bytes(value: Json) -> bytes:
    if (
        not isinstance(value, dict)
        or value.keys() != {"type", "items"}
        or not isinstance(value["items"], list)
    ):
        refuse(f'{shown(value)} is no array, such as {{"type": "int", "items": [1, 2]}}')
    kind, found = value["type"], []
    if not isinstance(kind, str) or kind not in SCALARS or kind == "decimal":
        refuse(f"an array of {shown(kind)} cannot be written here; give it as amqp")
    for at, item in enumerate(value["items"]):
        try:
            found.append(SCALARS[kind].from_json(item))
        except ValueRefused as error:
            raise error.within(f"[{at}]") from None
    try:
        return encode(Array(kind, tuple(found)))
    except (EncodeError, ArithmeticError, ValueError) as error:
        raise ValueRefused(f"the array cannot be written: {error}") from None


def _described_bytes(value: Json) -> bytes:
    if not isinstance(value, list) or len(value) != 2:
        refuse(f"{shown(value)} is no described value: it is an array of descriptor and value")
    return b"\x00" + b"".join(_several(value))


def _amqp_bytes(value: Json) -> bytes:
    raw = binary_of(value)
    try:
        end = check(raw, 0, len(raw), to_store(len(raw)))
    except DecodeError as error:
        raise ValueRefused(f"these bytes are no AMQP 1.0 value: {error}") from None
    if end != len(raw):
        refuse("these bytes are more than one AMQP 1.0 value")
    return raw


_COMPOUNDS: Final[dict[str, Callable[[Json], bytes]]] = {
    "list": _list_bytes,
    "map": pairs_bytes,
    "array": _array_bytes,
    "described": _described_bytes,
    "amqp": _amqp_bytes,
}
"""The other types; `amqp` is an encoded value in Base64."""
