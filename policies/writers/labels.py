"""Names of RabbitMQ objects as identifiers of other systems: readable, unique, always the same."""

from __future__ import annotations

import hashlib
import re

DIGEST_LENGTH = 8


def label(name: str, *, separator: str, length_max: int) -> str:
    """Return lower-case letters, digits and separators that name exactly one `name`.

    Whatever is lost on the way (other characters, length) is made up for by a digest.
    """
    readable = re.sub(r"[^a-z0-9]+", separator, name.lower()).strip(separator)
    if readable and readable == name and len(readable) <= length_max:
        return readable
    kept = readable[: length_max - DIGEST_LENGTH - 1].strip(separator)
    return f"{kept}{separator}{digest(name)}" if kept else digest(name)


def digest(name: str) -> str:
    """Return a few letters and digits that stand for a name."""
    return hashlib.sha256(name.encode()).hexdigest()[:DIGEST_LENGTH]
