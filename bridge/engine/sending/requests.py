"""Send, schedule and cancel: checked here, then handed to the entity's sequencer."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Sequence

from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine import texts
from bridge.engine.ownership.services import Services
from bridge.message.envelopes import Outgoing, encode
from bridge.model import entity as model
from bridge.model.entity import Tier
from bridge.model.errors import (
    ArgumentError,
    EntityDisabled,
    EntityNotFound,
    MessageSizeExceeded,
    NotAllowed,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    ServiceBusError,
)
from bridge.model.name import SHORT_ID_BYTES
from bridge.model.tiers import message_size_max_bytes
from bridge.topology import names
from bridge.topology.policy import MEBIBYTE
from bridge.wire import envelope
from bridge.wire.envelope import Operation

FULL_S = 10.0
"""The time that an entity counts as full after its queue has refused a message: longer than its
sequencer takes to try again."""

CATCH_UP_S = 5.0
"""The longest wait of a batch delete, or a list of sessions, for earlier messages' numbers."""

_NO_ENTITY = bytes(SHORT_ID_BYTES)

_MISSING = (312, 404)
"""RabbitMQ's reply codes: no queue took the message, there is no such exchange."""


def new_identity() -> bytes:
    """Return an identity for an envelope."""
    return os.urandom(envelope.IDENTITY_BYTES)


class Sending:
    """The verbs send, schedule and cancel.

    Attributes:
        tier: the namespace's tier.
        message_bytes_max: RabbitMQ's largest message; set when its version is known.
    """

    def __init__(self, services: Services) -> None:
        self._sender = services.sender
        self._on_missing = services.on_missing
        self._counters = services.counters
        self.message_bytes_max = 0
        self._full_until_s: dict[str, float] = {}
        self.tier = Tier.STANDARD

    def note_full(self, path: str, for_s: float = FULL_S) -> None:
        """Refuse sends to an entity for a while: it is full."""
        self._full_until_s[path.lower()] = asyncio.get_running_loop().time() + for_s

    def note_changed(self, path: str) -> None:
        """Forget that an entity was full: it was changed, or made again."""
        self._full_until_s.pop(path.lower(), None)

    def full(self, entity: model.SendEntity) -> str:
        """Return the reason why an entity takes no more messages now; "" if it takes them."""
        full_until_s = self._full_until_s.get(entity.path.lower(), 0.0)
        if asyncio.get_running_loop().time() >= full_until_s:
            return ""
        return texts.full(type(entity).__name__, entity.path, entity.max_size_mb * MEBIBYTE)

    async def send(self, entity: model.SendEntity, batch: Sequence[Outgoing]) -> None:
        """Store all messages or none.

        Raises:
            OperationTimeout: whether they are stored is unknown. After any other error they are
                not.
        """
        body = self._checked(Operation.SEND, entity, batch)
        if not batch:
            return
        with self._through_front(entity):
            await self._sender.publish(
                names.front(entity.path), "", envelope.SILENT_PROPERTIES, body
            )
        self._counters.sent += len(batch)

    async def schedule(self, entity: model.SendEntity, batch: Sequence[Outgoing]) -> list[int]:
        """Store messages for later; return their numbers."""
        body = self._checked(Operation.SCHEDULE, entity, batch)
        if not batch:
            return []
        numbers = await self._ask(entity, body)
        self._counters.scheduled += len(batch)
        return list(numbers)

    async def cancel(self, entity: model.SendEntity, numbers: Sequence[int]) -> None:
        """Remove scheduled messages, all of them or none."""
        _check_status(entity)
        if not numbers:
            return
        await self._ask(entity, envelope.encode_cancel(new_identity(), numbers))
        self._counters.cancelled += len(numbers)

    async def drain(self, front: str) -> None:
        """Wait until the leader has handled all messages in a queue's or topic's inbox.

        Raises:
            ServerBusy, OperationTimeout: RabbitMQ, or the leader, gives no answer.
            Unroutable: the entity has no inbox.
        """
        body = envelope.encode_used(new_identity(), [(_NO_ENTITY, 0)])
        await self._sender.ask("", names.inbox(front), envelope.HEADERS, body, persistent=True)

    async def catch_up(self, front: str) -> None:
        """Wait up to `CATCH_UP_S` until receivers can get all messages sent before."""
        with contextlib.suppress(ServiceBusError, BrokerError, TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await self.drain(front)

    @contextlib.contextmanager
    def _through_front(self, entity: model.SendEntity) -> Iterator[None]:
        """Have the front exchange made again when it was deleted or unbound by hand."""
        try:
            yield
        except Unroutable as error:
            self._on_missing(entity.path)
            raise EntityNotFound(texts.not_found(entity.path)) from error
        except (ServerBusy, OperationTimeout) as error:
            if isinstance(error.__cause__, BrokerError) and error.__cause__.code in _MISSING:
                self._on_missing(entity.path)
            raise

    async def _ask(self, entity: model.SendEntity, body: bytes) -> Sequence[int]:
        front = names.front(entity.path)
        with self._through_front(entity):
            done = await self._sender.ask(front, "", envelope.HEADERS, body, persistent=True)
        return done.numbers

    def check_open(self, entity: model.SendEntity) -> None:
        """Refuse sends to an entity that is disabled or full.

        Raises:
            EntityDisabled, QuotaExceeded: the entity is disabled, or full.
        """
        _check_status(entity)
        if full := self.full(entity):
            raise QuotaExceeded(full)

    def _checked(
        self, operation: Operation, entity: model.SendEntity, batch: Sequence[Outgoing]
    ) -> bytes:
        """Check a batch, and return its envelope."""
        self.check_open(entity)
        requires_session = isinstance(entity, model.Queue) and entity.requires_session
        limit_bytes = message_size_max_bytes(entity, self.tier)
        for outgoing in batch:
            if outgoing.size_bytes > limit_bytes:
                raise MessageSizeExceeded(
                    texts.too_large(entity.path, outgoing.size_bytes, limit_bytes)
                )
            if requires_session and outgoing.session_id is None:
                raise NotAllowed(texts.SESSION_ID_MISSING)
        try:
            body = encode(operation, entity, batch, new_identity())
        except ValueError as error:
            raise ArgumentError(
                f"A message cannot be stored in '{entity.path}': {error}."
            ) from error
        if len(body) > self.message_bytes_max:
            raise MessageSizeExceeded(
                texts.too_large(entity.path, len(body), self.message_bytes_max)
            )
        return body


def _check_status(entity: model.SendEntity) -> None:
    if not entity.status.allows_sends:
        raise EntityDisabled(texts.disabled(entity.path, for_sends=True))
