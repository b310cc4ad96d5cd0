"""Asks: questions to the owner of a queue, sent through the queue, wherever the owner is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from bridge.background.retry import retry
from bridge.broker.errors import BrokerError, PublishRefused, Unroutable
from bridge.engine import texts
from bridge.engine.sending.sender import REPLY_TIMEOUT_S, Sender
from bridge.model.errors import OperationTimeout, ServerBusy
from bridge.wire.basic import Table
from bridge.wire.reply import Done

FULL_RETRY_S = 0.2


async def in_time(stand_by: Callable[[], Awaitable[None]], *, what: str) -> None:
    """Await `stand_by`, within `REPLY_TIMEOUT_S`; its errors become Service Bus's.

    Args:
        stand_by: consumes the queue, so that it has an owner, which answers asks.
        what: the queue's messages, for error texts.

    Raises:
        ServerBusy, OperationTimeout: RabbitMQ refuses, or does not answer in time.
    """
    with _as_service_bus_says(what):
        async with asyncio.timeout(REPLY_TIMEOUT_S):
            await stand_by()


async def ask(sender: Sender, resource: str, table: Table, body: bytes, *, what: str) -> Done:
    """Publish an ask into a queue and return the owner's answer.

    A full queue refuses the ask until its messages have been delivered: it is published again.

    Raises:
        ServerBusy, OperationTimeout: RabbitMQ, or the owner, gives no answer.
        ServiceBusError: the owner refuses with this error.
    """
    asking = partial(sender.ask, "", resource, table, body, persistent=True, can_expire=True)
    with _as_service_bus_says(what):
        return await retry(asking, wait_s=FULL_RETRY_S, retryable=_is_full, total_s=REPLY_TIMEOUT_S)


@contextmanager
def _as_service_bus_says(what: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise OperationTimeout(f"RabbitMQ does not deliver {what} now.") from error
    except Unroutable as error:
        raise ServerBusy(texts.SERVER_BUSY) from error
    except BrokerError as error:
        raise ServerBusy(texts.busy(error)) from error


def _is_full(error: BaseException) -> bool:
    return isinstance(error, ServerBusy) and isinstance(error.__cause__, PublishRefused)
