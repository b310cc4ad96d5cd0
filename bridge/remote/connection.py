"""One AMQP connection to a namespace: bytes to events, events to the owners of links."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import uuid4

from bridge.machine.amqp10.client import ANONYMOUS, CLIENT_LIMITS, PLAIN, ClientEndpoint
from bridge.machine.amqp10.client_session import ClientSession
from bridge.machine.amqp10.endpoint import ConnectionState
from bridge.machine.amqp10.events import Closed, Event, LinkDetached, Opened
from bridge.machine.amqp10.faults import AmqpFault
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import SharedKey
from bridge.remote.errors import (
    CONNECTION_FORCED,
    NOT_REACHED,
    TIMEOUT,
    RemoteBusy,
    RemoteConnectionLost,
    RemoteError,
    RemoteUnauthorized,
    error_of,
)
from bridge.remote.patience import Pause
from bridge.remote.stream import Stream, connect
from bridge.wire.amqp10.performatives import Error
from bridge.wire.amqp10.scalars import Symbol

log = logging.getLogger("busbridge.remote")

PRODUCT = "busbridge"

CLOSE_S = 2.0
"""How long the end of a connection waits for the server's close."""

OPEN_S = 30.0
"""How long a connection may take to open, from the first packet on."""

ABORTED = "The connection was closed by this client."


class RemoteConnection:
    """A connection; it is made by `open`, and does not come back when it is lost.

    Attributes:
        lost: why it has ended; `None` as long as it lives.
        pause: begun when the server closes it, or ends a link of it, because it is busy.
    """

    def __init__(
        self, address: RemoteAddress, plain: SharedKey | None = None, pause: Pause | None = None
    ) -> None:
        self.address = address
        self.pause = pause or Pause()
        self.lost: RemoteError | None = None
        self._loop = asyncio.get_running_loop()
        self._endpoint = ClientEndpoint(
            container_id=f"{PRODUCT}-{uuid4()}",
            hostname=address.hostname,
            mechanism=ANONYMOUS if plain is None else PLAIN,
            response=b"" if plain is None else f"\0{plain.name}\0{plain.key}".encode(),
            properties={Symbol("product"): PRODUCT},
            limits=CLIENT_LIMITS,
            now_ms=self._now_ms(),
        )
        self._stream: Stream | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._is_flush_due = False
        self._tick: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RemoteConnection {self.address.url} {self._endpoint!r}>"

    @property
    def is_open(self) -> bool:
        """Whether links can be attached."""
        return self.lost is None and self._endpoint.state is ConnectionState.OPEN

    @property
    def server_id(self) -> str:
        """The container-id by which the server has opened; "" before."""
        peer = self._endpoint.peer
        return "" if peer is None else str(peer.container_id)

    async def open(self, within_s: float = OPEN_S) -> None:
        """Connect, log in and open.

        Raises:
            RemoteUnauthorized: the login is refused.
            RemoteConnectionLost: the server is not reached, or is none.
        """
        try:
            async with asyncio.timeout(within_s):
                self._stream = await connect(self.address, self._on_bytes, self._on_lost)
                self._on_tick()
                await self._opened
        except TimeoutError:
            text = f"{self.address.url} did not open a connection within {within_s:.0f} s."
            self._end(RemoteConnectionLost(TIMEOUT, text))
            self.abort()
            assert self.lost is not None
            raise self.lost from None
        except BaseException:
            self.abort()
            raise

    def begin(self) -> ClientSession:
        """Begin a session; raises RemoteConnectionLost."""
        try:
            session = self._endpoint.begin()
        except AmqpFault as fault:
            raise self.lost or RemoteConnectionLost(
                fault.error.condition, fault.error.description or ""
            ) from None
        self.flush_soon()
        return session

    def flush_soon(self) -> None:
        """Write the output at the end of the loop's turn."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    async def close(self) -> None:
        """Close, and wait a little for the server's close; nothing is raised.

        Whoever waits for an answer is told at once that the connection has ended.
        """
        if self._stream is None:
            return
        self._end(RemoteConnectionLost(CONNECTION_FORCED, ABORTED), is_asked=True)
        for event in self._endpoint.end_links():
            self._on_event(event)
        self._endpoint.close()
        self._flush()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._over
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._stream is not None:
            self._stream.abort()

    # -- bytes, time, and the end

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _on_bytes(self, data: bytes) -> None:
        for event in self._endpoint.receive(data, self._now_ms()):
            self._on_event(event)
        self._flush()

    def _flush(self) -> None:
        self._is_flush_due = False
        output = self._endpoint.take_output()
        if self._stream is None:
            return
        if output:
            self._stream.write(output)
        if self._endpoint.state is ConnectionState.FINISHED:
            self._stream.close()

    def _on_tick(self) -> None:
        for event in self._endpoint.tick(self._now_ms()):
            self._on_event(event)
        self._flush()
        if self._endpoint.state is not ConnectionState.FINISHED:
            self._arm_tick()

    def _arm_tick(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        delay_s = max(self._endpoint.deadline_ms - self._now_ms(), 50) / 1000
        self._tick = self._loop.call_later(delay_s, self._on_tick)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._arm_tick()  # the server has said how often it wants to hear of us
            if not self._opened.done():
                self._opened.set_result(None)
        elif isinstance(event, Closed):
            self._end(_closed(self.address, event.error))
        elif isinstance(event, LinkDetached) and self._endpoint.state is not ConnectionState.OPEN:
            self._loop.call_soon(self._tell, event)  # once it is known why the connection ends
        else:
            self._tell(event)

    @staticmethod
    def _tell(event: Any) -> None:
        if event.link.owner is not None:
            event.link.owner.on_event(event)

    def _on_lost(self, error: BaseException | None) -> None:
        text = f"The connection to {self.address.url} was lost"
        self._end(RemoteConnectionLost(NOT_REACHED, f"{text}: {error}." if error else f"{text}."))
        for event in self._endpoint.lost():
            self._on_event(event)
        self._stream = None
        if self._tick is not None:
            self._tick.cancel()
        if not self._over.done():
            self._over.set_result(None)

    def _end(self, error: RemoteError, *, is_asked: bool = False) -> None:
        if self.lost is not None:
            return
        self.lost = error
        self.pause.begin(error)
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # it may be that nobody waits any more
        elif not is_asked:
            log.info("connection.ended url=%s error=%s", self.address.url, error)


def _closed(address: RemoteAddress, error: Error | None) -> RemoteError:
    """Return the error for a connection that was closed by its server, or for a fault of its."""
    if error is None:
        text = f"The server at {address.url} has closed the connection."
        return RemoteConnectionLost(CONNECTION_FORCED, text)
    found = error_of(error.condition, error.description)
    if isinstance(found, RemoteUnauthorized | RemoteBusy):
        return found
    return RemoteConnectionLost(error.condition, error.description or "")
