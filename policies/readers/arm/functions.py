"""Functions of ARM templates that depend on their arguments alone.

Source: Azure Resource Manager, "ARM template functions". Arrays, comparison, logic, numbers,
objects and texts are here; functions that use a scope (`parameters`, `copyIndex`, `lambda`) are in
`evaluation`.
"""

from __future__ import annotations

import base64
import json
import operator
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from policies.readers.arm.unresolved import is_unresolved, is_whole, reason, unresolved

Function = Callable[..., Any]


class FunctionError(ValueError):
    """A function was called with arguments that it does not take."""


def call(name: str, arguments: list[Any]) -> Any:
    """Return the value of a function; a stand-in when the function or an argument is not known.

    Raises:
        FunctionError: the function does not take the arguments.
    """
    function = FUNCTIONS.get(name)
    if function is None:
        return unresolved(f"the function {name}() is not known here")
    if name not in _TOLERANT:
        for argument in arguments:
            if is_whole(argument) or (name in _STRICT and is_unresolved(argument)):
                return unresolved(reason(argument))
    try:
        return _checked(function(*arguments))
    except FunctionError:
        raise
    except _MISTAKES as error:
        raise FunctionError(f"{name}() is called wrongly: {error}") from error


_MISTAKES = (
    *(TypeError, ValueError, LookupError, ArithmeticError, AttributeError, StopIteration),
    *(RecursionError, MemoryError),
)
"""What Python's functions say of values that they do not take."""

SIZE_MAX = 131_072
"""Characters of a text, parts of an array or object (all that is in it counted).

A text in a template has at most as many (Azure Resource Manager limits); without a limit ten
variables, each made twice of the one before, fill any memory.
"""

_INTEGER_MAX = 2**63 - 1


def _checked(value: Any) -> Any:
    """Return a value, or raise `ValueError` when it is larger than Azure allows."""
    left, size = [value], 0
    while left:
        each = left.pop()
        if isinstance(each, int) and abs(each) > _INTEGER_MAX:
            raise ValueError("a number has 64 bits")
        size += len(each) if isinstance(each, str | list | dict) else 1
        if size > SIZE_MAX:
            raise ValueError(f"the value has more than {SIZE_MAX} parts")
        left += each if isinstance(each, list) else ()
        left += each.values() if isinstance(each, dict) else ()
    return value


def _range(start: int, count: int) -> list[int]:
    if not 0 <= count <= _RANGE_MAX:
        raise ValueError(f"a range has at most {_RANGE_MAX} numbers")
    return [*range(start, start + count)]


_RANGE_MAX = 10_000
"""Numbers of a range (Azure Resource Manager, `range`)."""


def _concat(*values: Any) -> Any:
    if values and all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    return "".join(_string(value) for value in values)


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _format(pattern: str, *values: Any) -> str:
    def one(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        value = values[int(match[1])]
        if match[2] and isinstance(value, int):
            spec = match[2].lstrip(":")
            if re.fullmatch(r"[dD]\d{1,2}", spec):
                return str(value).zfill(int(spec[1:]))
            if re.fullmatch(r"0{1,99}", spec):
                return str(value).zfill(len(spec))
            return unresolved(f"the number format {spec!r} is not known here")
        return _string(value)

    return re.sub(r"\{\{|\}\}|\{(\d+)(:[^}]*)?\}", one, pattern)


def _equals(left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _contains(container: Any, value: Any) -> bool:
    if isinstance(container, str):
        return _string(value) in container
    if isinstance(container, dict):
        return any(str(value).lower() == key.lower() for key in container)
    return any(_equals(each, value) for each in container)


def _bool(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise ValueError(f"{value!r} is neither true nor false")
    return bool(value)


def _numbers(choose: Callable[[list[int]], int]) -> Function:
    def function(*values: Any) -> int:
        return choose(values[0] if len(values) == 1 and isinstance(values[0], list) else [*values])

    return function


def _div(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _first(value: Any) -> Any:
    return value[0] if value else ("" if isinstance(value, str) else None)


def _last(value: Any) -> Any:
    return value[-1] if value else ("" if isinstance(value, str) else None)


def _union(*given: Any) -> Any:
    """Return the union of objects or arrays; the stand-in of an unknown object becomes a key."""
    missing = [value for value in given if is_whole(value)]
    values = [value for value in given if not is_whole(value)]
    if missing and any(not isinstance(value, dict) for value in values):
        return unresolved(reason(missing[0]))
    values += [{value: value} for value in missing]
    if isinstance(values[0], dict):
        merged: dict[str, Any] = {}
        for value in values:
            for key, each in value.items():
                both = isinstance(merged.get(key), dict) and isinstance(each, dict)
                merged[key] = _union(merged[key], each) if both else each
        return merged
    found: list[Any] = []
    for value in values:
        found += [each for each in value if each not in found]
    return found


def _intersection(*values: Any) -> Any:
    first, *others = values
    if isinstance(first, dict):
        return {
            key: value
            for key, value in first.items()
            if all(key in other and other[key] == value for other in others)
        }
    return [each for each in first if all(each in other for other in others)]


def _split(text: str, delimiters: Any) -> list[str]:
    marks = [delimiters] if isinstance(delimiters, str) else delimiters
    return re.split("|".join(map(re.escape, marks)), text)


def _substring(text: str, start: int, length: int | None = None) -> str:
    if start > len(text) or (length is not None and start + length > len(text)):
        raise ValueError(f"{text!r} is shorter")
    return text[start:] if length is None else text[start : start + length]


def _pad_left(value: Any, length: int, filler: str = " ") -> str:
    if length > SIZE_MAX:
        raise ValueError(f"{length} characters are too many")
    return _string(value).rjust(length, filler)


def _index_of(container: Any, value: Any) -> int:
    if isinstance(container, str):
        return container.lower().find(value.lower())
    return container.index(value) if value in container else -1


def _try_get(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, dict):
            value = next((v for k, v in value.items() if k.lower() == str(key).lower()), None)
        elif isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value):
            value = value[key]
        else:
            return None
    return value


def _items(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value[key]} for key in sorted(value)]


def _create_object(*values: Any) -> dict[str, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))


def _flatten(values: list[Any]) -> list[Any]:
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def _merge(values: list[Any]) -> Any:
    known = [value if isinstance(value, dict) else {value: value} for value in values]
    return {key: each for value in known for key, each in value.items()}


def _skip(value: Any, count: int) -> Any:
    return value[max(count, 0) :]


def _take(value: Any, count: int) -> Any:
    return value[: max(count, 0)]


def _resource_id(*values: Any) -> str:
    """Return a resource's id from `/providers/` on: only Azure knows the part before."""
    at = next(i for i, value in enumerate(values) if isinstance(value, str) and "/" in value)
    provider, *kinds = values[at].split("/")
    names = [segment for value in values[at + 1 :] for segment in str(value).split("/")]
    pairs = "".join(f"/{kind}/{name}" for kind, name in zip(kinds, names, strict=True))
    return f"/providers/{provider}{pairs}"


FUNCTIONS: dict[str, Function] = {
    "add": operator.add,
    "and": lambda *values: all(map(_bool, values)),
    "array": lambda value: value if isinstance(value, list) else [value],
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64tostring": lambda text: base64.b64decode(text).decode(),
    "bool": _bool,
    "coalesce": lambda *values: next((each for each in values if each is not None), None),
    "concat": _concat,
    "contains": _contains,
    "createarray": lambda *values: [*values],
    "createobject": _create_object,
    "div": _div,
    "empty": lambda value: value is None or len(value) == 0,
    "endswith": lambda text, end: text.lower().endswith(end.lower()),
    "equals": _equals,
    "extensionresourceid": lambda scope, *rest: f"{scope}{_resource_id(*rest)}",
    "false": lambda: False,
    "first": _first,
    "flatten": _flatten,
    "float": float,
    "format": _format,
    "greater": operator.gt,
    "greaterorequals": operator.ge,
    "indexof": _index_of,
    "int": int,
    "intersection": _intersection,
    "items": _items,
    "join": lambda values, mark: mark.join(map(_string, values)),
    "json": json.loads,
    "last": _last,
    "length": len,
    "less": operator.lt,
    "lessorequals": operator.le,
    "max": _numbers(max),
    "min": _numbers(min),
    "mod": lambda a, b: a - b * _div(a, b),
    "mul": operator.mul,
    "not": lambda value: not _bool(value),
    "null": lambda: None,
    "objectkeys": sorted,
    "or": lambda *values: any(map(_bool, values)),
    "padleft": _pad_left,
    "range": _range,
    "replace": lambda text, old, new: text.replace(old, new),
    "resourceid": _resource_id,
    "shallowmerge": _merge,
    "skip": _skip,
    "split": _split,
    "startswith": lambda text, start: text.lower().startswith(start.lower()),
    "string": _string,
    "sub": operator.sub,
    "subscriptionresourceid": _resource_id,
    "substring": _substring,
    "take": _take,
    "tenantresourceid": _resource_id,
    "tolower": lambda text: text.lower(),
    "toupper": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "true": lambda: True,
    "tryget": _try_get,
    "union": _union,
    "uri": lambda base, rest: base.rstrip("/") + "/" + rest.lstrip("/"),
    "uricomponent": lambda text: quote(text, safe=""),
}

_TOLERANT = {
    "concat",
    "format",
    "createarray",
    "createobject",
    "array",
    "resourceid",
    "string",
    "union",
    "shallowmerge",
    "flatten",
    "coalesce",
    "tolower",
    "toupper",
    "trim",
}
"""Functions that hand a stand-in on instead of becoming one."""

_STRICT = {
    "equals",
    "contains",
    "length",
    "empty",
    "startswith",
    "endswith",
    "indexof",
    "int",
    "bool",
    "json",
    "substring",
    "split",
    "not",
    "and",
    "or",
    "less",
    "greater",
    "lessorequals",
    "greaterorequals",
    "replace",
    "take",
    "skip",
}
"""Functions whose result cannot be known when a part of an argument is not."""
