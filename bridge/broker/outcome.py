"""How a publish or a hand-over ends, and a future that is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.errors import BrokerError

Done = Callable[[BrokerError | None], None]
"""Called once: `None` when RabbitMQ has confirmed it, else why it did not."""


def resolve(future: asyncio.Future[None], error: BrokerError | None) -> None:
    """Resolve a future with an outcome, unless whoever waited for it has given up."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # whoever waits may be gone: no reason for a warning
