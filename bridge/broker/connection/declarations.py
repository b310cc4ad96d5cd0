"""Exchanges, queues and bindings, declared and removed on a channel."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import NamedTuple, cast

from bridge.broker.connection.calls import Calls
from bridge.topology import resources
from bridge.wire import amqp091 as wire
from bridge.wire.basic import Table, table_of

Arguments = Mapping[str, object] | None
"""Arguments of a declaration: plain Python values, or fields with their type letters."""


class QueueState(NamedTuple):
    """The answer to queue.declare: the queue's name, ready messages and consumers."""

    name: str
    messages: int
    consumers: int


def _table(arguments: Arguments) -> Table:
    return table_of(arguments) if arguments else {}


class Declarations:
    """The part of a channel that declares, binds and deletes.

    Each awaitable raises the ChannelClosed that RabbitMQ answers with (NotFound,
    PreconditionFailed, ...); the channel is closed then.
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
        """Declare a durable exchange; with `passive`, only check that the exchange exists."""
        if isinstance(exchange, resources.Exchange):
            name, kind, arguments = exchange.name, exchange.type, exchange.arguments
        else:
            name = exchange
        flags = (passive, True, False, False, False)
        return self._calls.ask(wire.EXCHANGE_DECLARE, 0, name, kind, *flags, _table(arguments))

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
        """Declare a queue; with `passive`, only check that it exists.

        With the name "", RabbitMQ chooses a name.
        """
        if isinstance(queue, resources.Queue):
            name, arguments = queue.name, queue.arguments
        else:
            name = queue
        flags = (passive, durable, exclusive, auto_delete, False)
        return _state(self._calls.ask(wire.QUEUE_DECLARE, 0, name, *flags, _table(arguments)))

    def require_queue(self, queue: str) -> None:
        """Have RabbitMQ close the channel with NotFound when a queue does not exist.

        When the queue exists, RabbitMQ sends no answer and asks no queue for its state.
        """
        flags = (True, False, False, False, True)
        self._calls.say(wire.QUEUE_DECLARE, 0, queue, *flags, {})

    def bind(self, binding: resources.Binding) -> Awaitable[None]:
        """Declare a binding, of a queue or of an exchange."""
        method = wire.EXCHANGE_BIND if binding.to_exchange else wire.QUEUE_BIND
        ends = binding.destination, binding.source
        table = _table(binding.arguments)
        return self._calls.ask(method, 0, *ends, binding.routing_key, False, table)

    def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", *, arguments: Arguments = None
    ) -> Awaitable[None]:
        """Bind a queue to an exchange."""
        table = _table(arguments)
        return self._calls.ask(wire.QUEUE_BIND, 0, queue, exchange, routing_key, False, table)

    def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", *, arguments: Arguments = None
    ) -> Awaitable[None]:
        """Remove a binding of a queue; a missing binding is no error."""
        table = _table(arguments)
        return self._calls.ask(wire.QUEUE_UNBIND, 0, queue, exchange, routing_key, table)

    def delete_queue(self, queue: str) -> Awaitable[None]:
        """Delete a queue with its messages."""
        return self._calls.ask(wire.QUEUE_DELETE, 0, queue, False, False, False)

    def delete_exchange(self, exchange: str) -> Awaitable[None]:
        """Delete an exchange with its bindings."""
        return self._calls.ask(wire.EXCHANGE_DELETE, 0, exchange, False, False)


async def _state(answer: Awaitable[wire.Method]) -> QueueState:
    return QueueState(*cast("tuple[str, int, int]", (await answer).arguments))
