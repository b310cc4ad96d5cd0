"""The addresses of other channels: publish answers to them, and check whether they are open.

Before RabbitMQ 4.0 an address whose node is dead ends the connection that checks it or publishes
to it (541; docs/rabbitmq-faults.md: dead-address). There, checks of addresses of other nodes and
answers to them go over separate connections. If such a connection is lost, its answers are lost,
and the requesters ask again. The bridge learns the node of its own connection from a message to
itself (`node_boot`); until that message has come back, answers wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bridge.background.tasks import Tasks
from bridge.broker.connection.address import HasChannels, await_end, is_there
from bridge.broker.connection.boot import boot_of, node_boot, node_of
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError, ConnectionLost
from bridge.model.errors import ServiceBusError

IDLE_S = 5.0
"""Time without a new answer after which a separate connection for answers is closed."""

ANSWERS_MAX = 10_000
"""Maximum number of answers that wait for such a connection; beyond it the oldest is dropped."""

RETRY_S = 1.0

_INTERNAL_ERROR = 541
_SINCE_4_0 = 4
"""From this major version on RabbitMQ reports that an address of a dead node does not exist."""


class Addresses:
    """Answers to addresses, and checks of addresses, on behalf of one connection.

    Args:
        publish: publishes to an address over the connection itself.

    Attributes:
        boot: the boot of RabbitMQ that the connection leads to; "" before `open`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        connection: Connection,
        publish: Callable[[str, bytes, bytes], None],
    ) -> None:
        self.boot = ""
        self._endpoint = endpoint
        self._connection = connection
        self._publish_here = publish
        self._is_apart = _major(connection) < _SINCE_4_0
        self._answers: deque[tuple[str, bytes, bytes]] = deque(maxlen=ANSWERS_MAX)
        self._has_answers = asyncio.Event()
        self._tasks = Tasks()
        self._answering: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Addresses on {self._connection!r} [{len(self._answers)} answers wait]>"

    async def open(self) -> None:
        """Find out the boot of RabbitMQ that the connection leads to."""
        self.boot = self.boot or await node_boot(self._connection)

    async def open_if_needed(self) -> None:
        """Find out the boot if RabbitMQ is older than 4.0; then publish the answers that waited.

        Tries again until it succeeds, however long an alarm of RabbitMQ lasts.
        """
        while self._is_unknown:
            if not self._connection.is_blocked:
                with contextlib.suppress(BrokerError):
                    await self.open()
                    break
            await asyncio.sleep(RETRY_S)
        waiting = list(self._answers)
        self._answers.clear()
        for each in waiting:
            with contextlib.suppress(BrokerError, ServiceBusError):
                self.answer(*each)

    @property
    def _is_unknown(self) -> bool:
        """Whether RabbitMQ is older than 4.0 and the connection's boot is not known yet."""
        return self._is_apart and not self.boot

    async def await_end(self, connection: HasChannels, address: str) -> None:
        """Wait until the channel with this address has ended; `connection` leads to this node."""
        if not self._is_elsewhere(address):
            await await_end(connection, address)
            return
        async with self._apart() as apart:
            try:
                await await_end(apart, address)
            except ConnectionLost as error:
                if error.code != _INTERNAL_ERROR:
                    raise

    async def is_there(self, connection: HasChannels, address: str) -> bool:
        """Whether the channel with this address is open; `connection` leads to this node."""
        if not self._is_elsewhere(address):
            return await is_there(connection, address)
        async with self._apart() as apart:
            try:
                return await is_there(apart, address)
            except ConnectionLost as error:
                if error.code != _INTERNAL_ERROR:
                    raise
                return False

    def _is_elsewhere(self, address: str) -> bool:
        """Whether an address needs a separate connection.

        It does before RabbitMQ 4.0 when its node is another one or cannot be told.
        """
        if not self._is_apart:
            return False
        try:
            return node_of(boot_of(address)) != node_of(self.boot)
        except BrokerError:
            return True

    def answer(self, address: str, properties: bytes, body: bytes) -> None:
        """Publish to an address; answers go out in the order of the calls.

        An answer to an address of another node may be lost without an error.

        Raises:
            Exception: whatever `publish` raises, for an address of this node.
        """
        if not self._is_elsewhere(address):
            self._publish_here(address, properties, body)
            return
        self._answers.append((address, properties, body))
        if self._is_unknown:
            return
        self._has_answers.set()
        if self._answering is None or self._answering.done():
            self._answering = self._tasks.start(self._answer(), "answers elsewhere")

    async def _answer(self) -> None:
        try:
            while self._answers:
                async with self._apart() as apart:
                    await self._publish(await apart.channel())
        except BrokerError:
            self._answers.clear()

    async def _publish(self, channel: Channel) -> None:
        """Publish the waiting answers until none comes for `IDLE_S`, or the connection ends."""
        with contextlib.suppress(BrokerError, TimeoutError):
            while True:
                while self._answers:
                    address, properties, body = self._answers.popleft()
                    channel.publisher.publish("", address, properties, body, mandatory=False)
                self._has_answers.clear()
                async with asyncio.timeout(IDLE_S):
                    await self._has_answers.wait()

    @asynccontextmanager
    async def _apart(self) -> AsyncIterator[Connection]:
        connection = await Connection.open(self._endpoint, name=f"{self._connection.name} apart")
        try:
            yield connection
        finally:
            await connection.close()


def _major(connection: Connection) -> int:
    version = str(connection.server_properties.get("version", ""))
    return int(version.partition(".")[0] or 0) if version[:1].isdigit() else _SINCE_4_0
