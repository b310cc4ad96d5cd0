"""Keeping a connection: after a loss, open another one and start the work from the beginning.

This module repeats no operation that was in flight when the connection was lost. The restarted
work reads the state of RabbitMQ and goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bridge.background.retry import GrowingWait, retry
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError, ConnectionLost

WAIT_MIN_S = 0.1
WAIT_MAX_S = 5.0
"""The longest wait between two attempts: a RabbitMQ that comes back is found within this time."""

STEADY_S = 10.0
"""A connection that lasted this long ends a row of failures: the waits start small again."""

Work = Callable[[Connection], Awaitable[None]]
OnState = Callable[[Connection | None, BrokerError | None], None]

log = logging.getLogger(__name__)


async def keep_connected(
    endpoint: Endpoint,
    work: Work,
    *,
    name: str,
    on_state: OnState | None = None,
    is_login_final: bool = True,
) -> None:
    """Run work on a connection, again and again on a new one, until it returns.

    Args:
        endpoint: the hosts and the login.
        work: called with a fresh connection. It is cancelled when the connection is lost, and
            started anew then, or when it raises a retryable BrokerError.
        name: the connection's name.
        on_state: called with (connection, None) when work begins and with (None, error) when a
            connection was lost or could not be made, or the work has failed.
        is_login_final: whether a refused login at the first connection is raised. After a first
            success a refused login is always retried: a RabbitMQ that starts refuses logins.

    Raises:
        BrokerError: an error that is not retryable.
    """
    waits = GrowingWait(WAIT_MIN_S, WAIT_MAX_S, steady_s=STEADY_S)
    has_connected = False

    async def once() -> None:
        nonlocal has_connected
        connection = await Connection.open(endpoint, name=name)
        has_connected = True
        waits.begin()
        try:
            if on_state is not None:
                on_state(connection, None)
            await _run(connection, work)
        finally:
            await connection.close()

    def is_retryable(error: BaseException) -> bool:
        if isinstance(error, ConnectionLost):
            return error.is_retryable or has_connected or not is_login_final
        return isinstance(error, BrokerError) and error.is_retryable

    def failed(error: BaseException, failures: int, wait_s: float) -> None:
        if on_state is not None and isinstance(error, BrokerError):
            on_state(None, error)
        log.warning("broker.lost name=%s wait_s=%.1f error=%s", name, wait_s, error)

    await retry(once, wait_s=waits, retryable=is_retryable, on_failed=failed)


async def _run(connection: Connection, work: Work) -> None:
    """Run work until it ends or the connection ends, which cancels it."""
    running = asyncio.ensure_future(work(connection))
    closed = asyncio.ensure_future(connection.closed.wait())
    try:
        await asyncio.wait((running, closed), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))
    finally:
        for each in (running, closed):
            each.cancel()
        await asyncio.gather(running, closed, return_exceptions=True)
    if not running.cancelled():
        error = running.exception()
        if error is None:
            return
        if connection.close_reason is None or not isinstance(error, BrokerError):
            raise error
    if connection.close_reason is None:
        raise asyncio.CancelledError
    raise connection.close_reason.again()
