"""A queue or stream that a leader makes for what it carries out, and waits for.

RabbitMQ may refuse it for as long as something stands in the way: another queue of its name, a
missing right, a limit of queues. The term goes on meanwhile: what needs the queue waits, and so
does what must not pass it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from bridge.background.waits import Waits
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.errors import BrokerError, NotFound
from bridge.broker.queue_on_use import make_on_use
from bridge.topology import names
from bridge.topology.resources import Queue

RETRY_S = 0.5

log = logging.getLogger(__name__)


class WaitingTerm(Protocol):
    """The term that waits; see `leader.Leader`."""

    name: str
    waits: Waits
    connection: ConnectionLease


async def await_made(term: WaitingTerm, queue: Queue, why: str) -> None:
    """Make a queue, unless it exists; return when RabbitMQ has made it.

    Args:
        why: for what the queue is made, as health says it.

    Raises:
        NotFound: the entity is deleted, or its exchange was.
    """
    exchange = names.active_exchange(term.name)
    with term.waits.begin(term.name, why) as wait:
        last = ""
        while True:
            try:
                await make_on_use(term.connection, queue, exchange)
                return
            except NotFound:
                raise
            except BrokerError as error:
                wait.reason = f"{why}, but RabbitMQ does not make {queue.name!r}: {error}"
                if str(error) != last:
                    last = str(error)
                    log.warning("leader.queue_refused queue=%s error=%s", queue.name, error)
            await asyncio.sleep(RETRY_S)
