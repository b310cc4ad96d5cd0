"""A fetched message as a strategy of receiving knows it; the engine adds the content."""

from __future__ import annotations

from typing import Protocol


class Fetched(Protocol):
    """A message that RabbitMQ has handed to this process and that is not settled.

    Attributes:
        number: the message's sequence number.
        fetch: the fetch that brought the message.
    """

    number: int
    fetch: int
