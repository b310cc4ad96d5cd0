"""Keeping a connection: after a loss, open another one and start the work from the beginning.

This module repeats no operation that was in flight when the connection was lost. The restarted
work reads the state of RabbitMQ and goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bridge.background.supervisor import Standing, Supervisor
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError, TooOld

PAUSE_MIN_S = 0.1
PAUSE_MAX_S = 5.0
"""The longest wait between two attempts: a RabbitMQ that comes back is found within this time."""

Work = Callable[[Connection], Awaitable[None]]
OnLost = Callable[[BaseException], None]

log = logging.getLogger(__name__)


def keep_connected(
    supervisor: Supervisor,
    endpoint: Endpoint,
    work: Work,
    *,
    kind: str,
    name: str,
    on_lost: OnLost | None = None,
    may_end: Callable[[], bool] = lambda: False,
    is_final: Callable[[BaseException], bool] = lambda error: False,
) -> Standing:
    """Run work on a connection, again and again on a new one, until the task is cancelled.

    Args:
        endpoint: the hosts and the login.
        work: called with a fresh connection. It is cancelled when the connection is lost. Whatever
            ends it, it is started anew.
        kind: the work's name for the supervisor.
        name: the connection's name.
        on_lost: called with the error when a connection was lost or could not be made, or the work
            has failed; health names that then no further. Without it, the supervisor does.
        may_end: whether work that has ended has ended rightly.
        is_final: whether the process ends with an error; it always does when RabbitMQ is too old.
    """

    async def once() -> None:
        connection = await Connection.open(endpoint, name=name)
        try:
            await _run(connection, work)
        finally:
            await connection.close()

    def failed(error: BaseException, failures: int, wait_s: float) -> None:
        log.warning("broker.lost name=%s wait_s=%.1f error=%s", name, wait_s, error)
        if on_lost is not None:
            on_lost(error)

    return supervisor.keep(
        kind,
        once,
        subject=name,
        may_end=may_end,
        is_final=lambda error: isinstance(error, TooOld) or is_final(error),
        pause_min_s=PAUSE_MIN_S,
        pause_max_s=PAUSE_MAX_S,
        on_failed=failed,
        is_named=on_lost is None,
    )


def is_permanent(error: BaseException) -> bool:
    """Whether a retry does not help against an error: a refused login, say, or a missing right.

    At a first start it is told at once. Later it is retried: a RabbitMQ that starts refuses logins,
    rights come back, and queues are deleted.
    """
    return isinstance(error, BrokerError) and not error.is_retryable


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
