"""Numbers of things in words: one of them is no several."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number of things, as `1 message` and `2,000 messages`.

    Args:
        plural: the word for several; "" for the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def be(count: int) -> str:
    """Return the verb that goes with so many: `is` or `are`."""
    return "is" if count == 1 else "are"


def have(count: int) -> str:
    """Return the verb that goes with so many: `has` or `have`."""
    return "has" if count == 1 else "have"
