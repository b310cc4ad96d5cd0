"""A message as RabbitMQ stores it."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.wire.basic import Properties


@dataclass(slots=True)
class Record:
    """Basic properties (with typed headers) and the body."""

    properties: Properties
    body: bytes
