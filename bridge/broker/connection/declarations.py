"""Exchanges, queues and bindings, declared and removed on a channel."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import NamedTuple

from bridge.broker.connection.calls import Calls
from bridge.topology import resources
from bridge.wire import amqp091 as wire
from bridge.wire.basic import Table, table_of

Arguments = Mapping[str, object] | None
"""Plain Python values, or fields with their type letters."""


class QueueState(NamedTuple):
    """What queue.declare answers."""

    name: str
    messages: int
    consumers: int


def _table(arguments: Arguments) -> Table:
    return table_of(arguments) if arguments else {}


class Declarations:
    """The part of a channel that declares, binds and deletes.

    Each call raises the ChannelClosed that RabbitMQ answers with (NotFound, PreconditionFailed,
    ...); the channel is closed then.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def declare_exchange(
        self,
        exchange: resources.Exchange | str,
        kind: str = "direct",
        *,
        passive: bool = False,
        arguments: Arguments = None,
    ) -> Awaitable[None]:
        """Declare an exchange, a durable one; with `passive`, only check that it is there."""
        if isinstance(exchange, resources.Exchange):
            name, kind, arguments = exchange.name, exchange.type, exchange.arguments
        else:
            name = exchange
        flags = (passive, True, False, False, False)
        return self._calls.tell(
            wire.EXCHANGE_DECLARE_OK,
            wire.EXCHANGE_DECLARE,
            0,
            name,
            kind,
            *flags,
            _table(arguments),
        )

    def declare_queue(
        self,
        queue: resources.Queue | str = "",
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: Arguments = None,
    ) -> Awaitable[QueueState]:
        """Declare a queue; with `passive`, only look. The name "" lets RabbitMQ choose one."""
        if isinstance(queue, resources.Queue):
            name, arguments = queue.name, queue.arguments
        else:
            name = queue
        flags = (passive, durable, exclusive, auto_delete, False)
        return self._calls.call(
            QueueState,
            wire.QUEUE_DECLARE_OK,
            wire.QUEUE_DECLARE,
            0,
            name,
            *flags,
            _table(arguments),
        )

    def require_queue(self, queue: str) -> None:
        """Have RabbitMQ close the channel with NotFound when a queue is not there.

        When it is RabbitMQ says nothing, and asks no queue for its state.
        """
        flags = (True, False, False, False, True)
        self._calls.say(wire.QUEUE_DECLARE, 0, queue, *flags, {})

    def bind(self, binding: resources.Binding) -> Awaitable[None]:
        """Bind what a binding names."""
        bind = self.bind_exchange if binding.to_exchange else self.bind_queue
        return bind(
            binding.destination, binding.source, binding.routing_key, arguments=binding.arguments
        )

    def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", *, arguments: Arguments = None
    ) -> Awaitable[None]:
        """Bind a queue to an exchange."""
        return self._calls.tell(
            wire.QUEUE_BIND_OK,
            wire.QUEUE_BIND,
            0,
            queue,
            exchange,
            routing_key,
            False,
            _table(arguments),
        )

    def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", *, arguments: Arguments = None
    ) -> Awaitable[None]:
        """Remove a binding of a queue; one that is not there is no error."""
        return self._calls.tell(
            wire.QUEUE_UNBIND_OK,
            wire.QUEUE_UNBIND,
            0,
            queue,
            exchange,
            routing_key,
            _table(arguments),
        )

    def bind_exchange(
        self, destination: str, source: str, routing_key: str = "", *, arguments: Arguments = None
    ) -> Awaitable[None]:
        """Bind an exchange to an exchange."""
        return self._calls.tell(
            wire.EXCHANGE_BIND_OK,
            wire.EXCHANGE_BIND,
            0,
            destination,
            source,
            routing_key,
            False,
            _table(arguments),
        )

    def delete_queue(self, queue: str) -> Awaitable[int]:
        """Delete a queue with what is in it; returns how many messages that were."""
        return self._calls.call(
            int, wire.QUEUE_DELETE_OK, wire.QUEUE_DELETE, 0, queue, False, False, False
        )

    def delete_exchange(self, exchange: str) -> Awaitable[None]:
        """Delete an exchange with its bindings."""
        return self._calls.tell(
            wire.EXCHANGE_DELETE_OK, wire.EXCHANGE_DELETE, 0, exchange, False, False
        )
