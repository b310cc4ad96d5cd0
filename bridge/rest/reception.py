"""One message for one request: waited for, delivered, and given back when nobody gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bridge.engine.api import (
    NamespaceVerbs,
    NotTaken,
    Received,
    ReceiveMode,
    Release,
    Undeliverable,
)
from bridge.gateway.links.messages import message_of
from bridge.model.availability import refusal_of_receives
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire.rest.outward import Shown, show

DRAIN_S = 5.0
"""How long the end of a wait looks for messages that are there already."""


class Reception:
    """A receiver for one message.

    A message that no request has got into its client's output by `close` is available again,
    uncounted.

    Args:
        check: raises ServiceBusError when the client may not receive any more.

    Raises:
        ServiceBusError: nobody may receive here; see `NamespaceVerbs.open_receiver`.
    """

    def __init__(
        self,
        namespace: NamespaceVerbs,
        path: EntityPath,
        mode: ReceiveMode,
        check: Callable[[], None],
    ) -> None:
        self._namespace = namespace
        self._path = path
        self._check = check
        self._loop = asyncio.get_running_loop()
        self._found: asyncio.Future[tuple[Received, Shown]] = self._loop.create_future()
        self._is_written = False
        self._receiver = namespace.open_receiver(path, mode=mode, deliver=self._deliver)

    async def message(
        self, timeout_s: float, leaving: asyncio.Future[None]
    ) -> tuple[Received, Shown] | None:
        """Return a message; `None` if none came in time, or the client left before.

        Raises:
            ServiceBusError, BrokerError: the entity does not allow receives any more, or RabbitMQ
                does not tell what is there.
        """
        self._receiver.add_credit(1)
        if timeout_s > 0:
            await self._first(leaving, timeout_s=timeout_s)
        if not self._found.done() and not leaving.done():
            draining = asyncio.ensure_future(self._receiver.drain())
            try:
                await self._first(leaving, draining, timeout_s=DRAIN_S)
                if draining.done() and not self._found.done():
                    draining.result()
            finally:
                draining.cancel()
        return self._found.result() if self._found.done() else None

    async def _first(self, *others: asyncio.Future[None], timeout_s: float) -> None:
        waited: list[asyncio.Future[Any]] = [self._found, *others]
        await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    def written(self) -> None:
        """Note that the message is in the client's output."""
        self._is_written = True

    async def close(self) -> None:
        """End the receiver; settle what was received and deleted, give back what was not written.

        All that matters is begun before this waits.
        """
        if not self._found.done():
            self._found.cancel()
        elif self._found.exception() is None:
            token = self._found.result()[0].lock_token
            if token is None:
                if self._is_written:
                    self._receiver.taken()
            elif not self._is_written:
                self._namespace.begin_settling(self._path, token, Release(), _ignore)
        await self._receiver.close()

    def _deliver(self, received: Received) -> None:
        if self._found.done():
            raise NotTaken
        try:
            self._check()
            entity = self._namespace.receive_entity(self._path)
            if (refused := refusal_of_receives(entity)) is not None:
                raise refused
        except ServiceBusError as error:  # deleted or changed meanwhile, or a right gone
            self._found.set_exception(error)
            raise NotTaken from error
        try:
            shown = show(
                received.record,
                message_of(received),
                sequence_number=received.sequence_number,
                enqueued_ms=received.enqueued_ms,
                delivery_count=received.delivery_count,
                time_to_live_ms=received.time_to_live_ms,
                state=received.state,
                lock_token=received.lock_token,
                locked_until_ms=received.locked_until_ms,
            )
        except Exception as error:
            self._loop.call_soon(self._receiver.add_credit, 1)
            raise Undeliverable(f"{type(error).__name__}: {error}") from error
        self._found.set_result((received, shown))


def _ignore(error: ServiceBusError | None) -> None:
    """Do nothing: a lock that is not there any more needs no release."""
