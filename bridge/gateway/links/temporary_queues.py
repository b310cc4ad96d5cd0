"""Temporary queues, as JMS clients ask for them: a queue lives as long as the link that asked.

A sender's attach with a dynamic target makes the queue, and is answered with its address. The right
to manage it is needed. A queue that outlives its link, because the bridge or RabbitMQ was lost, is
deleted when it was idle for its AutoDeleteOnIdle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard
from uuid import uuid4

from bridge.engine.clock import now_ms
from bridge.gateway.client.client import Client, refuse
from bridge.gateway.links.sending import SendingLink
from bridge.gateway.links.subscribing import idle_ms
from bridge.machine.amqp10.link import IncomingLink
from bridge.model.duration import instant_text
from bridge.model.entity import MINUTE_MS, Queue, Right
from bridge.model.errors import EntityNotFound, ServiceBusError
from bridge.model.name import parse_path
from bridge.wire.amqp10.performatives import Target
from bridge.wire.amqp10.types import Described, Symbol, Ulong
from bridge.wire.link_properties import QUEUE_IDLE_S, TEMPORARY_QUEUE_CAPABILITY

IDLE_MS: Final = 5 * MINUTE_MS
"""AutoDeleteOnIdle of a temporary queue whose client does not say another."""

_LIFETIME: Final = Symbol("lifetime-policy")
_DELETE_ON_CLOSE: Final = Described(Ulong(0x2B), [])


def asks_for_queue(asked: Any) -> TypeGuard[Target]:
    """Whether a target asks for a temporary queue."""
    return (
        isinstance(asked, Target)
        and asked.dynamic
        and TEMPORARY_QUEUE_CAPABILITY in (asked.capabilities or ())
    )


def temporary_queue(opened: Mapping[Any, Any] | None) -> Queue:
    """Return a new temporary queue.

    Args:
        opened: the properties of the client's `open`.

    Raises:
        ArgumentOutOfRange: the client asks for an AutoDeleteOnIdle that no queue may have.
    """
    made_at = instant_text(now_ms())
    return Queue(
        name=f"temporary-queue-{uuid4().hex}",
        auto_delete_on_idle_ms=idle_ms(opened, QUEUE_IDLE_S, IDLE_MS),
        created_at=made_at,
        updated_at=made_at,
    )


class TemporaryQueueLink(SendingLink):
    """A link that has a temporary queue made, and whose end deletes it.

    Args:
        queue: the queue to make.
    """

    right = Right.MANAGE

    def __init__(self, client: Client, link: IncomingLink, queue: Queue) -> None:
        self._queue = queue
        self._is_made = False
        self._is_gone = False
        super().__init__(client, link, parse_path(queue.name), 0)

    def begin(self, message_bytes_max: int) -> None:
        """Make the queue; then answer the attach."""
        self.client.links.spawn(self.link, self._make())

    async def _make(self) -> None:
        namespace = self.client.namespace
        try:
            await namespace.administration.create(self._queue)
            self._is_made = True
            if self._is_gone:
                await self._delete()
                return
            lifetime = {_LIFETIME: _DELETE_ON_CLOSE}
            name = self._queue.name
            self.link.target = Target(name, dynamic=True, dynamic_node_properties=lifetime)
            super().begin(namespace.message_bytes_max(self.path))
        except ServiceBusError as error:
            refuse(self.client, self.link, str(self.path), error)
            self.client.links.forget(self)
        self.client.flush_soon()

    def on_detached(self) -> None:
        """Delete the queue."""
        self._is_gone = True
        if self._is_made:
            self.client.work.spawn(self._delete())

    async def _delete(self) -> None:
        try:
            await self.client.namespace.administration.delete(self._queue.name)
        except EntityNotFound:
            pass  # an administrator has deleted it
        except ServiceBusError as error:
            reason = str(error)
            self.client.log.info("temporary.left", entity=self._queue.name, reason=reason)
