"""Lists that are asked for again and again: an answer that has not changed is not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One value of a list, and its text."""

    text: str
    value: Any


class Listing(NamedTuple):
    """An answer.

    Attributes:
        digest: of the whole text.
        rows: its values.
    """

    digest: bytes
    rows: Sequence[Row]
