"""Stand-ins for values that only Azure knows and no template says.

A stand-in is a text that holds a marked reason. Functions pass it on: so
`concat(uniqueString(...), '/orders')` still ends in `/orders`, and a reader that needs the whole
value finds the reason in it.
"""

from __future__ import annotations

import re

_BEGIN, _END = "\ue000", "\ue001"
_REASON = re.compile(f"{_BEGIN}([^{_END}]*){_END}?")


def unresolved(reason: str) -> str:
    """Return the stand-in for a value that is not known, with the reason."""
    return _BEGIN + reason.replace("/", "\u2215").replace(_BEGIN, "").replace(_END, "") + _END


def is_unresolved(value: object) -> bool:
    """Whether a value, or a part of it, is not known."""
    if isinstance(value, str):
        return _BEGIN in value or _END in value
    return any(map(is_unresolved, _parts(value)))


def _parts(value: object) -> list[object]:
    """Return the keys and values of an object, or the elements of an array."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def is_whole(value: object) -> bool:
    """Whether a value is a stand-in and nothing else."""
    return (
        isinstance(value, str)
        and value.startswith(_BEGIN)
        and value.find(_END) in (-1, len(value) - 1)
    )


def reason(value: object) -> str:
    """Return the reasons why a value is not known, in one text."""
    if isinstance(value, str):
        found = [match.replace("\u2215", "/") for match in _REASON.findall(value)]
        return "; ".join(dict.fromkeys(found)) or "it is cut from a value that is not known"
    reasons = [reason(each) for each in _parts(value) if is_unresolved(each)]
    return "; ".join(dict.fromkeys(reasons))
