"""A connection to RabbitMQ: login, channels, alarms, and its end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from bridge.broker.connection.calls import RPC_TIMEOUT_S
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.channel_numbers import CHANNELS_MAX_DEFAULT, ChannelNumbers
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.connection.frame_handler import Discarding
from bridge.broker.connection.publisher import CONFIRM_TIMEOUT_S
from bridge.broker.connection.transport import FRAME_MAX_DEFAULT, Transport
from bridge.broker.errors import BrokerError, ConnectionLost, LoginRefused, TlsRefused, TooOld
from bridge.topology.capabilities import Capabilities, UnsupportedVersion
from bridge.wire import amqp091 as wire
from bridge.wire.basic import Table, python_value, text

HEARTBEAT_S = 10
"""A silent RabbitMQ is noticed after 20 to 25 s; RabbitMQ's default interval is 60 s."""

OPEN_TIMEOUT_S = 15.0
"""Deadline for TCP, TLS and login on one host. RabbitMQ delays a refused login by a second."""

CLOSE_TIMEOUT_S = 5.0
"""How long RabbitMQ may take to answer a close. While it blocks the connection it does not read."""

_PRODUCT = "busbridge"
_LOGIN_REFUSALS = frozenset((403, 530))

_DISCARDING = Discarding()
"""Takes what RabbitMQ sends of channels that it has closed."""

_CAPABILITIES = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "exchange_exchange_bindings",
    "publisher_confirms",
)


class Connection:
    """A connection; `Connection.open` makes one.

    Attributes:
        name: the connection's name in RabbitMQ's management.
        server_properties: RabbitMQ's server properties (version and so on), as plain Python.
        is_blocked: RabbitMQ has an alarm and reads nothing from this connection.
        on_blocked: called with (is_blocked, reason) when an alarm begins or ends.
        closed: set when the connection has ended.
        close_reason: why the connection has ended; None while it lives.
        on_closed: called once with the close reason.
        unanswered: the owners of the channels that waited for a queue's answer (to a consume or
            a get) when the connection ended.
    """

    def __init__(self, name: str, timeout_s: float, confirm_timeout_s: float) -> None:
        self.name = name
        self.server_properties: dict[str, Any] = {}
        self.on_blocked: Callable[[bool, str], None] | None = None
        self.closed = asyncio.Event()
        self.close_reason: ConnectionLost | None = None
        self.on_closed: Callable[[ConnectionLost], None] | None = None
        self.unanswered: frozenset[str] = frozenset()
        self._timeout_s = timeout_s
        self._confirm_timeout_s = confirm_timeout_s
        self._transport = Transport(self._on_lost)
        self._transport.handlers[0] = self
        self._channels: dict[int, Channel] = {}
        self._numbers = ChannelNumbers()
        self._awaited: asyncio.Future[wire.Method] | None = None
        self._awaited_numbers: tuple[int, ...] = ()

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else f"closed: {self.close_reason}"
        return f"<Connection {self.name!r} [{state}, {len(self._channels)} channels]>"

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        *,
        name: str,
        heartbeat_s: float = HEARTBEAT_S,
        open_timeout_s: float = OPEN_TIMEOUT_S,
        timeout_s: float = RPC_TIMEOUT_S,
        confirm_timeout_s: float = CONFIRM_TIMEOUT_S,
    ) -> Connection:
        """Connect to the first host that answers.

        Args:
            endpoint: the hosts and the login.
            name: the connection's name, which RabbitMQ shows to operators.
            heartbeat_s: interval of heartbeats, 0 for none.
            open_timeout_s: deadline for each host.
            timeout_s: deadline for each later answer.
            confirm_timeout_s: deadline for each confirm.

        Raises:
            LoginRefused: user, password, certificate or virtual host is wrong.
            TooOld: RabbitMQ is older than 4.0.
            TlsRefused: one side does not take the other's certificate.
            ConnectionLost: no host answers; the text says what each one did.
        """
        failures = []
        refused: LoginRefused | TooOld | None = None
        tls_refusals = 0
        for host, port in endpoint.hosts:
            connection = cls(name, timeout_s, confirm_timeout_s)
            try:
                async with asyncio.timeout(open_timeout_s):
                    await connection._connect(endpoint, host, port, heartbeat_s)
            except (LoginRefused, TooOld) as error:
                # A node that is just starting refuses a login that another node accepts.
                refused = error
            except TlsRefused as error:
                failures.append(f"{host}:{port}: {error}")
                tls_refusals += 1
            except TimeoutError:
                failures.append(f"{host}:{port} did not answer within {open_timeout_s:g} s")
            except (OSError, BrokerError) as error:
                failures.append(f"{host}:{port}: {error}")
            else:
                return connection
            finally:
                if not connection.server_properties:
                    connection._transport.lose(ConnectionLost(text="not connected"))
                    await connection._transport.is_gone.wait()
        if refused is not None:
            raise refused
        kind = TlsRefused if tls_refusals == len(endpoint.hosts) else ConnectionLost
        raise kind(text="no RabbitMQ answers: " + "; ".join(failures))

    @property
    def is_blocked(self) -> bool:
        """Whether RabbitMQ has an alarm."""
        return self._transport.is_blocked

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        return self.close_reason is not None

    @property
    def is_idle(self) -> bool:
        """Whether no channel has a consumer, an unsettled delivery, or an answer that is due."""
        return not any(channel.consumers.is_busy for channel in self._channels.values())

    @property
    def queue_answers(self) -> int:
        """The number of answers that have come from queues' own processes (consume, get)."""
        return self._transport.queue_answers

    @property
    def awaits_queue(self) -> bool:
        """Whether a queue's own answer (to a consume or a get) is due on any channel."""
        return any(channel.awaits_queue for channel in self._channels.values())

    async def channel(self, owner: str = "") -> Channel:
        """Open a channel.

        Args:
            owner: the queue or entity that the channel serves.
        """
        channel = self._channel(owner)
        try:
            await channel.open()
        except asyncio.CancelledError:
            channel.abandon()
            raise
        return channel

    def channel_soon(self, owner: str = "") -> Channel:
        """Open a channel and return it at once; its methods are written after its channel.open.

        Raises:
            BrokerError: half of all channels are in use; the other half is for `channel`.
        """
        if len(self._channels) >= self._numbers.most // 2:
            raise BrokerError(504, f"half of the channels of {self.name} are in use")
        channel = self._channel(owner)
        channel.open()
        return channel

    def _channel(self, owner: str) -> Channel:
        if self.close_reason is not None:
            raise self.close_reason.again()
        number = self._numbers.take()
        if number is None:
            raise BrokerError(504, f"all {self._numbers.most} channels of {self.name} are in use")
        channel = Channel(
            self._transport,
            number,
            on_free=self._on_free,
            timeout_s=self._timeout_s,
            confirm_timeout_s=self._confirm_timeout_s,
        )
        channel.owner = owner
        self._channels[number] = self._transport.handlers[number] = channel
        return channel

    def flush(self) -> None:
        """Write the collected frames without waiting for the end of the turn."""
        self._transport.flush()

    async def close(self) -> None:
        """Close the connection in order; this never raises, and takes a few seconds at most.

        When it is cancelled, the connection ends at once.
        """
        if self.close_reason is None:
            try:
                await asyncio.gather(
                    *(channel.consumers.linger() for channel in self._channels.values())
                )
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._say_goodbye()
            except (TimeoutError, BrokerError):
                pass
            finally:
                self._transport.lose(ConnectionLost(200, "closed by the bridge"))
        await self._transport.is_gone.wait()

    async def _say_goodbye(self) -> None:
        answer = self._expect(wire.CONNECTION_CLOSE_OK)
        self._transport.flush()
        self._write(wire.CONNECTION_CLOSE, 200, "goodbye", 0, 0)
        await answer

    async def _connect(self, endpoint: Endpoint, host: str, port: int, heartbeat_s: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            if endpoint.tls is None:
                await loop.create_connection(lambda: self._transport, host, port)
            else:
                # In two steps, to have the transport below TLS: encrypted bytes wait there.
                plain, _ = await loop.create_connection(asyncio.Protocol, host, port)
                secure = await loop.start_tls(
                    plain, self._transport, endpoint.tls, server_hostname=host
                )
                assert secure is not None
                self._transport.connection_made(secure, plain)
        except ssl.SSLError as error:
            raise TlsRefused.of(error) from error
        start = self._expect(wire.CONNECTION_START)
        self._transport.write(wire.PROTOCOL_HEADER)
        arguments = (await start).arguments
        properties = cast("dict[str, Any]", python_value(("F", arguments[2])))
        try:
            Capabilities.served(str(properties.get("version", "")))
        except UnsupportedVersion as error:
            raise TooOld(text=str(error)) from error
        mechanisms = cast(bytes, arguments[3]).decode().split()
        tune = self._expect(wire.CONNECTION_TUNE)
        self._write(
            wire.CONNECTION_START_OK,
            self._client_properties(),
            *_login(endpoint, mechanisms),
            "en_US",
        )
        try:
            tuned = cast("tuple[int, int, int]", (await tune).arguments)
            opened = self._expect(wire.CONNECTION_OPEN_OK)
            self._tune(*tuned, heartbeat_s)
            self._write(wire.CONNECTION_OPEN, endpoint.vhost, "", False)
            await opened
        except ConnectionLost as error:
            if error.code in _LOGIN_REFUSALS and "limit" not in error.text:
                raise LoginRefused(error.code, error.text) from error
            raise
        self.server_properties = properties
        self._transport.opened_s = loop.time()

    def _client_properties(self) -> Table:
        return {
            "product": text(_PRODUCT),
            "connection_name": text(self.name),
            "capabilities": ("F", dict.fromkeys(_CAPABILITIES, ("t", True))),
        }

    def _tune(self, channel_max: int, frame_max: int, heartbeat_s: int, wanted_s: float) -> None:
        self._numbers.most = channel_max or CHANNELS_MAX_DEFAULT
        frame_max = frame_max or FRAME_MAX_DEFAULT
        self._transport.payload_max = frame_max - wire.FRAME_OVERHEAD
        # RabbitMQ counts in whole seconds.
        told_s = max(1, round(wanted_s)) if wanted_s else 0
        self._write(wire.CONNECTION_TUNE_OK, self._numbers.most, frame_max, told_s)
        self._transport.start_heartbeats(wanted_s)

    def _write(self, method: int, *arguments: object) -> None:
        self._transport.write(wire.method_frame(0, method, *arguments))

    def _expect(self, *numbers: int) -> asyncio.Future[wire.Method]:
        future: asyncio.Future[wire.Method] = self._transport.loop.create_future()
        if self.close_reason is not None:
            future.set_exception(self.close_reason.again())
        else:
            self._awaited, self._awaited_numbers = future, numbers
        return future

    def on_method(self, raw: bytes, start: int, end: int) -> None:
        """Take a method frame of channel 0: the connection's own methods."""
        method = wire.read_method(raw, start, end)
        arguments = method.arguments
        match method.number:
            case wire.CONNECTION_CLOSE:
                code, reason = cast("tuple[int, str]", arguments[:2])
                self._write(wire.CONNECTION_CLOSE_OK)
                self._transport.flush()
                self._transport.lose(ConnectionLost(code, reason))
            case wire.CONNECTION_BLOCKED:
                self._set_blocked(True, cast(str, arguments[0]))
            case wire.CONNECTION_UNBLOCKED:
                self._set_blocked(False, "")
            case number if number in self._awaited_numbers and self._awaited is not None:
                self._awaited_numbers = ()
                if not self._awaited.done():
                    self._awaited.set_result(method)
            case number:
                raise ValueError(f"method {number >> 16}.{number & 0xFFFF} where none was due")

    def on_header(self, raw: bytes, start: int, end: int) -> None:
        """Refuse content frames on channel 0."""
        raise ValueError("content on channel 0")

    on_body = on_header

    def _set_blocked(self, is_blocked: bool, reason: str) -> None:
        self._transport.is_blocked = is_blocked
        if self.on_blocked is not None:
            self._notify(self.on_blocked, is_blocked, reason)

    def _on_free(self, channel: Channel) -> None:
        number, is_late = channel.number, channel.is_closed_by_rabbitmq
        if self._channels.get(number) is not channel:
            return
        del self._channels[number]
        if is_late:
            self._transport.handlers[number] = _DISCARDING
        else:
            del self._transport.handlers[number]
        self._numbers.give_back(number, rests=is_late)

    def _on_lost(self, error: ConnectionLost) -> None:
        self.close_reason = error
        self.unanswered = frozenset(
            channel.owner for channel in self._channels.values() if channel.awaits_queue
        )
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(error.again())
            self._awaited.exception()
        for channel in list(self._channels.values()):
            channel.finish(error)
        self._channels.clear()
        self._transport.handlers.clear()
        self.closed.set()
        if self.on_closed is not None:
            self._notify(self.on_closed, error)

    def _notify(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception as error:
            self._transport.loop.call_exception_handler(
                {"message": f"a callback of connection {self.name!r} failed", "exception": error}
            )


def _login(endpoint: Endpoint, mechanisms: list[str]) -> tuple[str, bytes]:
    mechanism = "EXTERNAL" if endpoint.is_external else "PLAIN"
    if mechanism not in mechanisms:
        offered = " ".join(mechanisms)
        raise LoginRefused(text=f"RabbitMQ does not take {mechanism} logins, but: {offered}")
    if endpoint.is_external:
        return mechanism, b""
    return mechanism, f"\0{endpoint.user}\0{endpoint.password}".encode()
