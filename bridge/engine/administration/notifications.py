"""Notifications between bridges, by one fanout exchange: a type, and the path of an entity.

(empty)   definitions have changed: read them all
changed   this entity's definition has changed: read it
peeked    the first peek of this entity: write settled numbers from now on
full      this entity's queue takes no more messages now
who       a client looks for bridges: answer with the name of this bridge's queue
here      a bridge has a new queue, or wants to be known: the process's name instead of a path, and
          in a header the features that it knows
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.engine.services import Services
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath, parse_path
from bridge.topology import names
from bridge.topology.parts import SCHEMA
from bridge.topology.resources import Binding
from bridge.wire.basic import Properties, python_value, text
from bridge.wire.notifications import WHO
from bridge.wire.reply import encode_found

CHANGED = ""
ENTITY_CHANGED = "changed"
FULL = "full"
PEEKED = "peeked"
HERE = "here"


_FEATURES = "features"


def _unheard(bridge: bytes, queue: bytes, features: str) -> None:
    pass


class Notifications:
    """Sends and receives notifications; a bridge ignores its own, except empty ones.

    Args:
        on_changed: called when definitions have changed.
        on_told: called with another bridge's notification of an entity (a type and a path).

    Attributes:
        on_here: called with the names of a bridge's process and of its queue, and with those of the
            features that it knows.
    """

    def __init__(
        self,
        services: Services,
        on_changed: Callable[[], None],
        on_told: Callable[[str, EntityPath], None],
    ) -> None:
        self._locks = services.locks
        self._name = self._locks.instance.hex()
        self._sender = services.sender
        self._poison = services.poison
        self._on_changed = on_changed
        self._on_told = on_told
        self.on_here: Callable[[bytes, bytes, str], None] = _unheard
        self._bound: Binding | None = None

    async def listen(self, connection: Connection) -> None:
        """Receive notifications on a connection, as long as it lasts."""
        channel = await connection.channel()
        queue = await channel.declarations.declare_queue(
            "", durable=False, exclusive=True, auto_delete=True
        )
        self._bound = Binding(source=names.EVENTS, destination=queue.name)
        await self.bind(channel)
        await channel.consumers.consume(queue.name, self._on_delivery, no_ack=True)
        self._on_changed()

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The binding of this process's own queue, once it listens."""
        return () if self._bound is None else (self._bound,)

    async def bind(self, channel: Channel) -> None:
        """Make the exchange and the binding, if they are missing."""
        await channel.declarations.declare_exchange(names.EVENTS, "fanout", arguments=SCHEMA)
        for binding in self.bindings:
            await channel.declarations.bind(binding)

    def tell(self, kind: str, path: EntityPath) -> None:
        """Publish a notification; it is dropped when RabbitMQ takes no publish now."""
        properties = Properties(type=kind, app_id=self._name).encode()
        try:
            self._sender.tell(names.EVENTS, properties, str(path).encode())
        except (ServiceBusError, BrokerError):
            return

    def tell_here(self, bridge: bytes, features: str) -> bool:
        """Tell all bridges this process's queue and features; return whether RabbitMQ took it."""
        properties = Properties(
            type=HERE,
            app_id=self._locks.instance.hex(),
            headers={_FEATURES: text(features)},
        ).encode()
        try:
            self._sender.tell(names.EVENTS, properties, bridge.hex().encode())
        except (ServiceBusError, BrokerError):
            return False
        return True

    def _on_delivery(self, delivery: Delivery) -> None:
        try:
            properties = Properties.decode(delivery.properties)
            if properties.type == HERE:
                queue = bytes.fromhex(properties.app_id or "")
                features = python_value((properties.headers or {}).get(_FEATURES, text("")))
                name = bytes.fromhex(delivery.body.decode())
                self.on_here(name, queue, features if isinstance(features, str) else "")
                return
            is_of_entity = properties.type in (ENTITY_CHANGED, FULL, PEEKED)
            path = parse_path(delivery.body.decode()) if is_of_entity else None
        except (ServiceBusError, ValueError) as error:
            self._poison.note("events", names.EVENTS, error)
            return
        if not properties.type:
            self._on_changed()
        elif properties.type == WHO:
            self._present(properties)
        elif path is not None and properties.app_id != self._name:
            self._on_told(properties.type, path)

    def _present(self, question: Properties) -> None:
        """Answer a client with this bridge's queue; it asks again when the answer is lost."""
        if not question.reply_to:
            return
        with suppress(ServiceBusError, BrokerError):
            own_queue = names.bridge_queue(self._locks.instance)
            answer = encode_found(own_queue.encode())
            self._sender.answer(question.reply_to, question.correlation_id or "", answer)
