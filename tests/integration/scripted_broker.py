"""A peer that speaks AMQP 0-9-1 by a script: what no real RabbitMQ does on demand.

It logs any client in and then runs the script; frames are made and read by pamqp, so that it shares
no code with the client under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pamqp.body
import pamqp.commands as spec
import pamqp.frame
import pamqp.header
import pamqp.heartbeat

from bridge.broker.connection.endpoint import Endpoint

FRAME_MAX = 131_072

CAPABILITIES = "publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked"
"""What clients ask of a RabbitMQ before they use it."""


class Peer:
    """One client, as the script sees it.

    Attributes:
        channel: the channel of the frame that was read last.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._buffer = b""
        self.channel = 0

    def send(self, frame: Any, channel: int = 1) -> None:
        """Write a frame."""
        self.writer.write(pamqp.frame.marshal(frame, channel))

    def send_message(self, method: Any, body: bytes, properties: Any, channel: int = 1) -> None:
        """Write a delivery or a return with its content."""
        self.send(method, channel)
        self.send(pamqp.header.ContentHeader(0, len(body), properties), channel)
        if body:
            self.send(pamqp.body.ContentBody(body), channel)

    async def read(self) -> Any:
        """Read a frame that is no heartbeat."""
        while True:
            with contextlib.suppress(pamqp.exceptions.UnmarshalingException):
                size, channel, frame = pamqp.frame.unmarshal(self._buffer)
                if size:
                    self.channel = channel
                    self._buffer = self._buffer[size:]
                    if not isinstance(frame, pamqp.heartbeat.Heartbeat):
                        return frame
                    continue
            chunk = await self._reader.read(65_536)
            if not chunk:
                raise ConnectionResetError("the client is gone")
            self._buffer += chunk

    async def expect(self, kind: type[Any]) -> Any:
        """Read frames up to the next one of a kind."""
        while not isinstance(frame := await self.read(), kind):
            pass
        return frame

    async def log_in(self) -> None:
        """Do what RabbitMQ does until a connection is open."""
        await self._reader.readexactly(8)
        properties: Any = {"version": "4.3.6", "capabilities": dict.fromkeys(CAPABILITIES, True)}
        self.send(spec.Connection.Start(0, 9, properties, "PLAIN", "en_US"), 0)
        await self.expect(spec.Connection.StartOk)
        self.send(spec.Connection.Tune(100, FRAME_MAX, 10), 0)
        await self.expect(spec.Connection.Open)
        self.send(spec.Connection.OpenOk(), 0)

    async def open_channel(self, *, confirms: bool = False) -> None:
        """Answer the opening of channel 1."""
        await self.expect(spec.Channel.Open)
        self.send(spec.Channel.OpenOk())
        if confirms:
            await self.expect(spec.Confirm.Select)
            self.send(spec.Confirm.SelectOk())


Script = Callable[[Peer], Awaitable[None]]


@contextlib.asynccontextmanager
async def scripted_broker(
    script: Script, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Endpoint]:
    """Run a script for each client; a script that fails makes the test fail."""
    failures: list[BaseException] = []
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            peer = Peer(reader, writer)
            await script(peer)
            await peer.expect(spec.Connection.Close)
            peer.send(spec.Connection.CloseOk(), 0)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception as error:
            failures.append(error)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Endpoint(hosts=(("127.0.0.1", port),))
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not failures, failures
