"""What a strategy of receiving knows of a message; the engine adds what it is."""

from __future__ import annotations

from typing import Protocol


class Fetched(Protocol):
    """A message that RabbitMQ has handed to this process and that is not settled.

    Attributes:
        number: its sequence number.
        fetch: the fetch that brought it.
    """

    number: int
    fetch: int
