"""A bridge without its AMQP 1.0 door: the engine and the sidecar, used as a door would use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.management.api import Management
from bridge.engine.api import Complete, Received, ReceiveMode, Receiver
from bridge.engine.namespace import RabbitNamespace
from bridge.message.envelopes import Outgoing
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.sidecar.leader.leader_state import Companion
from bridge.sidecar.sidecar import Sidecar
from bridge.wire import headers
from bridge.wire.basic import Properties, text
from bridge.wire.record import Record
from tests.fixtures.broker import Broker

WAIT_S = 120.0


def outgoing(
    body: str, *, ttl_ms: int | None = None, scheduled_ms: int | None = None, **fields: str
) -> Outgoing:
    """A message as a door makes one; `fields` are its application properties."""
    table = {name: text(value) for name, value in fields.items()}
    if ttl_ms is not None:
        table[headers.TIME_TO_LIVE] = ("l", ttl_ms)
    properties = Properties(message_id=body, headers=table, delivery_mode=2)
    record = Record(properties, body.encode())
    return Outgoing(record=record, size_bytes=len(body), scheduled_ms=scheduled_ms)


class Client:
    """A receiver that puts what it is given into a list."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self._arrived = asyncio.Event()
        self.receiver: Receiver

    def deliver(self, received: Received) -> None:
        """Take a message."""
        self.received.append(received)
        if received.lock_token is None:
            self.receiver.taken()
        self._arrived.set()

    async def receive(self, count: int = 1) -> list[Received]:
        """Ask for messages, and return them when they are all there."""
        self.receiver.add_credit(count)
        return await self.wait(count)

    async def wait_for_first(self) -> None:
        """Wait until something is there."""
        async with asyncio.timeout(WAIT_S):
            await self._arrived.wait()

    async def wait(self, count: int) -> list[Received]:
        """Take this many messages off the list."""
        async with asyncio.timeout(WAIT_S):
            while len(self.received) < count:
                self._arrived.clear()
                await self._arrived.wait()
        taken, self.received = self.received[:count], self.received[count:]
        return taken


@dataclass
class Door:
    """One bridge."""

    namespace: RabbitNamespace
    sidecar: Sidecar
    management: Management
    path: EntityPath = field(default_factory=lambda: EntityPath("orders"))

    @property
    def dead_letters(self) -> EntityPath:
        """The dead-letter sub-queue of its entity."""
        return EntityPath(self.path.entity, SubQueue.DEAD_LETTER)

    def client(
        self, mode: ReceiveMode = ReceiveMode.PEEK_LOCK, path: EntityPath | None = None
    ) -> Client:
        """Open a receiver."""
        client = Client()
        client.receiver = self.namespace.open_receiver(
            path or self.path, mode=mode, deliver=client.deliver
        )
        return client

    async def send(self, *bodies: str) -> None:
        """Send messages one by one, so that they are numbered in this order."""
        for body in bodies:
            await self.namespace.send(self.path, [outgoing(body)])

    async def complete(self, *received: Received, path: EntityPath | None = None) -> None:
        """Complete messages."""
        for each in received:
            assert each.lock_token is not None
            await self.namespace.settle(path or self.path, each.lock_token, Complete())


@asynccontextmanager
async def open_door(
    endpoint: Endpoint,
    management_url: str,
    *queues: model.Queue,
    with_sidecar: bool = True,
    session_shards: int = model.SESSION_SHARDS_DEFAULT,
    supervisor: Supervisor | None = None,
    owns_vhost: bool = False,
) -> AsyncIterator[Door]:
    """Start a bridge with these queues."""
    supervisor = supervisor or Supervisor()
    async with Management(endpoint, management_url) as management:
        namespace = RabbitNamespace(
            endpoint,
            management,
            name="test",
            waiting=lambda entity, number, count: sidecar.waiting(entity, number, count),
            session_shards=session_shards,
            owns_vhost=owns_vhost,
            supervisor=supervisor,
        )
        sidecar = Sidecar(
            endpoint,
            on_full=namespace.note_full,
            on_missing=namespace.reconciler.due.complete,
            companion=Companion(
                namespace.forwarding.lead,
                namespace.forwarding.leave,
                namespace.forwarding.transfer,
            ),
            whole=namespace.reconciler.due.whole,
            looked=namespace.reconciler.due.looked,
            supervisor=supervisor,
        )
        namespace.reconciler.upkeep.leading = sidecar.routes
        namespace.half_made.silent.append(lambda: sidecar.silent)

        namespace.directory.follow(sidecar.follow)
        await namespace.start()
        await namespace.apply(model.Namespace(queues=queues))
        running = (
            supervisor.keep("sidecar", sidecar.run, may_end=lambda: sidecar.is_stopping)
            if with_sidecar
            else None
        )
        try:
            yield Door(namespace, sidecar, management)
        finally:
            await namespace.close()
            if running is not None:
                await sidecar.stop()
                running.task.cancel()
                await asyncio.gather(running.task, return_exceptions=True)


@asynccontextmanager
async def open_door_unseeing(
    endpoint: Endpoint, broker: Broker, vhost: str, *queues: model.Queue
) -> AsyncIterator[Door]:
    """Start a bridge whose user, named as the vhost, may not see how many nodes RabbitMQ has."""
    path = f"/api/users/{vhost}"
    broker.management("PUT", path, {"password": "p", "tags": "policymaker"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    broker.management("PUT", f"/api/permissions/{vhost}/{vhost}", everything)
    login = replace(endpoint, user=vhost, password="p")
    address = broker.management_url.partition("@")[2]
    async with open_door(login, f"http://{address}", *queues) as opened:
        yield opened
    broker.management("DELETE", path)
