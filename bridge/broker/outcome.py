"""The outcome of a publish or a hand-over, and how to put it into a future."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.errors import BrokerError

Done = Callable[[BrokerError | None], None]
"""Callback for an outcome, called once: with `None` for success, else with the error.

For what an error says of a publish, or of a hand-over, see `bridge.broker.errors`."""


def resolve(future: asyncio.Future[None], error: Exception | None) -> None:
    """Resolve a future with an outcome, unless the future is done already (cancelled, say)."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # marks it as retrieved: asyncio warns of errors that nobody awaited
