"""The text of a line: an object of JSON, in which no name stands twice."""

from __future__ import annotations

import json
from typing import NoReturn

from bridge.operations.lines.scalar_values import Json, ValueRefused, shown


def parsed(line: str) -> dict[str, Json]:
    """Return the fields of a line; ValueRefused if it is no object of JSON."""
    try:
        found = json.loads(line, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueRefused(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueRefused("the JSON nests too deeply") from None
    if not isinstance(found, dict):
        raise ValueRefused(f'{shown(found)} is no message: it is an object, as {{"body": "text"}}')
    return found


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueRefused(f"the name {twice!r} stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueRefused(f'{name} is no JSON; write {{"double": "{name}"}}')
