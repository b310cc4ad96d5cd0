"""What a client does with a delivery, by its identity and count, the same in every language.

The programs in JavaScript, Java, Go and C# reckon alike: FNV-1a, 32 bits, of `ID/COUNT`, modulo
100, looked up in the shares below.
"""

from __future__ import annotations

SHARES = (
    (68, "complete"),
    (80, "abandon"),
    (85, "throw"),
    (90, "dead"),
    (95, "defer"),
    (97, "lapse"),
    (100, "late"),
)
"""Upper bounds, in percent: `throw` is a handler that fails, so the client abandons; `lapse` is
left to its lock; `late` is completed after half a second, beside others."""

POISON = "poison"
"""An identity that begins so fails at each delivery."""


def _fnv1a(text: str) -> int:
    value = 2_166_136_261
    for byte in text.encode():
        value = (value ^ byte) * 16_777_619 & 0xFFFF_FFFF
    return value


def fate_of(identity: str, count: int, *, in_session: bool = False) -> str:
    """Return what is done with a delivery.

    Args:
        count: the deliveries that failed before this one: 0 for the first.
        in_session: nothing is left to its lock, which is the session's.
    """
    value = _fnv1a(f"{identity}/{count}")
    if identity.startswith(POISON):
        return "throw" if value % 2 else "abandon"
    fate = next(fate for below, fate in SHARES if value % 100 < below)
    return "complete" if in_session and fate == "lapse" else fate


def takes_deferred(identity: str) -> bool:
    """Whether a message is received by its number and completed after it was deferred."""
    return _fnv1a(identity) % 2 == 0
