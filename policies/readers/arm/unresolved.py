"""What only Azure knows: values that no reading of a template alone can give.

Such a value goes on through functions as a text that holds a marked reason. So
`concat(uniqueString(...), '/orders')` still ends in `/orders`, and whoever needs the whole value
finds the reason in it.
"""

from __future__ import annotations

import re

_BEGIN, _END = "\ue000", "\ue001"
_REASON = re.compile(f"{_BEGIN}([^{_END}]*){_END}?")


def unresolved(reason: str) -> str:
    """Return the stand-in for a value that is not known; `reason` says why."""
    return _BEGIN + reason.replace("/", "\u2215").replace(_BEGIN, "").replace(_END, "") + _END


def is_unresolved(value: object) -> bool:
    """Whether a value, or something inside it, is not known."""
    if isinstance(value, str):
        return _BEGIN in value or _END in value
    return any(map(is_unresolved, _parts(value)))


def _parts(value: object) -> list[object]:
    """What is in an object or array, keys too."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def is_whole(value: object) -> bool:
    """Whether a value is nothing but a stand-in."""
    return (
        isinstance(value, str)
        and value.startswith(_BEGIN)
        and value.find(_END) in (-1, len(value) - 1)
    )


def reason(value: object) -> str:
    """Return why a value is not known."""
    if isinstance(value, str):
        found = [match.replace("\u2215", "/") for match in _REASON.findall(value)]
        return "; ".join(dict.fromkeys(found)) or "it is cut from a value that is not known"
    reasons = [reason(each) for each in _parts(value) if is_unresolved(each)]
    return "; ".join(dict.fromkeys(reasons))
