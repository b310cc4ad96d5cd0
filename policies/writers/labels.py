"""Names of RabbitMQ objects as identifiers of other systems: readable, unique and stable."""

from __future__ import annotations

import hashlib
import re

DIGEST_LENGTH = 8


def label(name: str, *, separator: str, length_max: int) -> str:
    """Return an identifier of lower-case letters, digits and separators that is unique to `name`.

    A name with other characters, or one that is too long, gets a digest at its end.
    """
    readable = re.sub(r"[^a-z0-9]+", separator, name.lower()).strip(separator)
    if readable and readable == name and len(readable) <= length_max:
        return readable
    kept = readable[: length_max - DIGEST_LENGTH - 1].strip(separator)
    return f"{kept}{separator}{digest(name)}" if kept else digest(name)


def digest(name: str) -> str:
    """Return the first hexadecimal digits of a name's digest."""
    return hashlib.sha256(name.encode()).hexdigest()[:DIGEST_LENGTH]
