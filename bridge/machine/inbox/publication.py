"""A publication of a sequencer."""

from __future__ import annotations

from typing import NamedTuple


class Publication(NamedTuple):
    """One message to publish; it leaves one entry in the journal."""

    exchange: str
    routing_key: str
    properties: bytes
    body: bytes
