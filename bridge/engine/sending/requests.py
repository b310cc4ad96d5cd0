"""Send, schedule, move and cancel: checked here, then handed to the entity's sequencer."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

from bridge.background.slices import in_slices
from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine import texts
from bridge.engine.api import OnSent
from bridge.engine.sending.answers import busy
from bridge.engine.sending.groups import BYTES_MAX, Group, Groups
from bridge.engine.services import Services
from bridge.message.batch_keys import BatchKeys
from bridge.message.envelopes import ImportedMessage, Outgoing, item_of
from bridge.model import entity as model
from bridge.model.availability import refusal_of_sends
from bridge.model.capacity import capacity_mb
from bridge.model.entity import Tier
from bridge.model.errors import (
    ArgumentError,
    EntityNotFound,
    MessageSizeExceeded,
    NotAllowed,
    QuotaExceeded,
    ServiceBusError,
)
from bridge.model.name import SHORT_ID_BYTES
from bridge.model.tiers import sendable_bytes_max
from bridge.topology import names
from bridge.topology.entity_table import Changes
from bridge.topology.policy import MEBIBYTE
from bridge.wire import envelope, series_numbers
from bridge.wire.envelope import Item, Operation
from bridge.wire.imported import run_digest
from bridge.wire.reply import Done
from bridge.wire.series_numbers import SeriesNumbers

FULL_S = 10.0
"""The time that an entity counts as full after its queue has refused a message: longer than its
sequencer takes to try again."""

CATCH_UP_S = 5.0
"""The longest wait of a batch delete, or a list of sessions, for earlier messages' numbers."""

_NO_ENTITY = bytes(SHORT_ID_BYTES)


def new_identity() -> bytes:
    """Return an identity for an envelope."""
    return os.urandom(envelope.IDENTITY_BYTES)


class Sending:
    """The verbs send, schedule, move and cancel.

    Attributes:
        tier: the namespace's tier.
        message_bytes_max: RabbitMQ's largest message (`max_message_size`); set at the start.
    """

    def __init__(self, services: Services) -> None:
        self._sender = services.sender
        self._on_missing = services.on_missing
        self._counters = services.counters
        self._groups = Groups(self._publish_group, services.sender.flush)
        self.message_bytes_max = 0
        self._full_until_s: dict[str, float] = {}
        self.tier = Tier.STANDARD
        self._default_limit = self.tier, 0, 0

    def follow(self, changes: Changes) -> None:
        """Take over the namespace's tier."""
        self.tier = changes.namespace.tier

    def note_full(self, path: str, for_s: float = FULL_S) -> None:
        """Refuse sends to an entity for a while: it is full."""
        self._full_until_s[path.lower()] = asyncio.get_running_loop().time() + for_s

    def note_changed(self, path: str) -> None:
        """Forget that an entity was full: it was changed, or made again."""
        self._full_until_s.pop(path.lower(), None)

    def full(self, entity: model.SendEntity) -> str:
        """Return the reason why an entity takes no more messages now; "" if it takes them."""
        if not self._full_until_s:
            return ""  # without `get_running_loop`, which makes a system call (Python 3.11)
        full_until_s = self._full_until_s.get(entity.path.lower(), 0.0)
        if asyncio.get_running_loop().time() >= full_until_s:
            return ""
        return texts.full(type(entity).__name__, entity.path, capacity_mb(entity) * MEBIBYTE)

    def limit_bytes(self, entity: model.SendEntity) -> int:
        """Return the size of the largest message that an entity takes from its senders."""
        if entity.max_message_size_kb is not None:
            return sendable_bytes_max(entity, self.tier, self.message_bytes_max)
        tier, rabbitmq_bytes_max, limit_bytes = self._default_limit
        if tier is not self.tier or rabbitmq_bytes_max != self.message_bytes_max:
            limit_bytes = sendable_bytes_max(entity, self.tier, self.message_bytes_max)
            self._default_limit = self.tier, self.message_bytes_max, limit_bytes
        return limit_bytes

    def begin(self, entity: model.SendEntity, batch: Sequence[Outgoing], told: OnSent) -> None:
        """Store all messages or none; `told` is called once, later or before this returns.

        A single message leaves in a group (`Groups`).

        Raises:
            ServiceBusError: the messages are refused, and nobody is told.
        """
        self.check_open(entity)
        keys = BatchKeys(entity) if len(batch) > 1 else None
        items = [self._checked(entity, outgoing, keys) for outgoing in batch]
        if not items:
            told(None)
            return
        if len(items) == 1 and items[0].scheduled_ms is None:
            size_bytes = envelope.item_bytes(items[0])
            if size_bytes <= BYTES_MAX <= self.message_bytes_max // 2:
                self._sender.check()
                self._groups.join(entity, names.front(entity.path), items[0], size_bytes, told)
                return
        body = self._encoded(Operation.SEND, entity, items)
        self._groups.leave(names.front(entity.path))
        self._publish(entity, body, len(items), told)

    def checked(self, entity: model.SendEntity, batch: Sequence[Outgoing]) -> list[Item]:
        """Check messages that belong together, and return them as items of an envelope.

        Raises:
            ServiceBusError: they are refused.
        """
        self.check_open(entity)
        keys = BatchKeys(entity) if len(batch) > 1 else None
        return [self._checked(entity, outgoing, keys) for outgoing in batch]

    async def begin_each(
        self, find: Callable[[], model.SendEntity], each: Iterator[Outgoing], told: OnSent
    ) -> None:
        """Do what `begin` does for a batch of any number of messages, made one by one.

        Other tasks get turns of the event loop meanwhile.

        Args:
            find: returns the entity's present definition.

        Raises:
            ServiceBusError: the messages are refused, and nobody is told.
        """
        entity = find()
        self.check_open(entity)
        pieces = await in_slices(self._encoded_each(entity, each))
        present = find()
        self.check_open(present)
        if present.incarnation != entity.incarnation:
            raise busy(f"'{entity.path}' was made anew while the batch was read")
        if not pieces:
            told(None)
            return
        head = envelope.encode_head(Operation.SEND, new_identity(), len(pieces))
        self._groups.leave(names.front(present.path))
        self._publish(present, b"".join([head, *pieces]), len(pieces), told)

    def _encoded_each(self, entity: model.SendEntity, each: Iterator[Outgoing]) -> Iterator[bytes]:
        """Yield the encoded items of an envelope, which RabbitMQ must take as one message."""
        keys = BatchKeys(entity)
        size_bytes = envelope.HEAD_BYTES
        for outgoing in each:
            piece = envelope.encode_item(self._checked(entity, outgoing, keys))
            size_bytes += len(piece)
            self._check_size(entity, size_bytes)
            yield piece

    def _publish_group(self, group: Group, told: OnSent) -> None:
        body = envelope.encode(Operation.SEND, new_identity(), group.items)
        try:
            self._publish(group.entity, body, len(group.items), told, group.since_s)
        except ServiceBusError as error:
            told(error)

    def _publish(
        self,
        entity: model.SendEntity,
        body: bytes,
        count: int,
        told: OnSent,
        since_s: float | None = None,
    ) -> None:
        """Publish an envelope of so many messages through an entity's front exchange."""

        def confirmed(error: ServiceBusError | Unroutable | None) -> None:
            if error is None:
                self._counters.sent += count
                told(None)
            else:
                told(self._explained(entity, error))

        front = names.front(entity.path)
        self._sender.begin_publish(front, "", envelope.SILENT_PROPERTIES, body, confirmed, since_s)

    async def schedule(self, entity: model.SendEntity, batch: Sequence[Outgoing]) -> list[int]:
        """Store messages for later; return their numbers."""
        self.check_open(entity)
        items = [self._checked(entity, outgoing) for outgoing in batch]
        if not items:
            return []
        body = self._encoded(Operation.SCHEDULE, entity, items)
        numbers = (await self.ask_leader(entity, body)).numbers
        self._counters.scheduled += len(batch)
        return list(numbers)

    async def import_messages(
        self, entity: model.SendEntity, run: str, batch: Sequence[ImportedMessage]
    ) -> None:
        """Store messages under their numbers, all of them or none, for the run that holds all."""
        if full := self.full(entity):
            raise QuotaExceeded(full)
        items = [self._checked(entity, outgoing) for outgoing in batch]
        body = envelope.encode(Operation.IMPORT, run_digest(run), items)
        self._check_size(entity, len(body))
        await self.ask_leader(entity, body)

    async def last_numbers(self, entity: model.SendEntity, run: str) -> list[SeriesNumbers]:
        """Return how far an entity's numbers are, behind all that the run has imported."""
        body = envelope.encode(Operation.IMPORT, run_digest(run), ())
        return series_numbers.decode((await self.ask_leader(entity, body)).content)

    async def cancel(self, entity: model.SendEntity, numbers: Sequence[int]) -> None:
        """Remove scheduled messages, all of them or none."""
        _check_status(entity)
        if not numbers:
            return
        await self.ask_leader(entity, envelope.encode_cancel(new_identity(), numbers))
        self._counters.cancelled += len(numbers)

    async def reschedule(
        self, entity: model.SendEntity, numbers: Sequence[int], batch: Sequence[Outgoing]
    ) -> list[int]:
        """Have messages take the places of scheduled ones, all or none; return their numbers.

        Args:
            numbers: of the scheduled messages, one for each of the batch.
        """
        _check_status(entity)
        items = [self._checked(entity, outgoing) for outgoing in batch]
        if not items:
            return []
        body = envelope.encode_move(new_identity(), numbers, items)
        self._check_size(entity, len(body))
        moved = (await self.ask_leader(entity, body)).numbers
        self._counters.moved += len(batch)
        return list(moved)

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

    def _explained(
        self, entity: model.SendEntity, error: ServiceBusError | Unroutable
    ) -> ServiceBusError:
        """Return what a sender is told of a publish through the front exchange.

        The front exchange is made again when it was deleted or unbound by hand.
        """
        if isinstance(error, Unroutable):
            self._on_missing(entity.path)
            missing = EntityNotFound(texts.not_found(entity.path))
            missing.__cause__ = error
            return missing
        cause = error.__cause__
        if isinstance(cause, BrokerError) and cause.is_missing:
            self._on_missing(entity.path)
        return error

    async def ask_leader(self, entity: model.SendEntity, body: bytes) -> Done:
        """Publish an envelope, behind what was sent before, and return its leader's answer.

        Raises:
            OperationTimeout: no answer has come; the envelope may be stored.
            ServiceBusError: as the answer says, or the envelope is not stored, nor will be.
        """
        front = names.front(entity.path)
        self._groups.leave(front)
        try:
            return await self._sender.ask(front, "", envelope.HEADERS, body, persistent=True)
        except (ServiceBusError, Unroutable) as error:
            raise self._explained(entity, error) from error.__cause__

    def check_open(self, entity: model.SendEntity) -> None:
        """Refuse sends to an entity that is disabled, held or full.

        Raises:
            EntityDisabled, ServerBusy, QuotaExceeded: the entity is disabled, held, or full.
        """
        _check_status(entity)
        if full := self.full(entity):
            raise QuotaExceeded(full)

    def _checked(
        self, entity: model.SendEntity, outgoing: Outgoing, keys: BatchKeys | None = None
    ) -> Item:
        """Check a message, and return it as an item of an envelope.

        Args:
            keys: those of the batch that the message belongs to.
        """
        limit_bytes = self.limit_bytes(entity)
        if outgoing.size_bytes > limit_bytes:
            raise MessageSizeExceeded(
                texts.too_large(entity.path, outgoing.size_bytes, limit_bytes)
            )
        if (
            outgoing.session_id is None
            and isinstance(entity, model.Queue)
            and entity.requires_session
        ):
            raise NotAllowed(texts.SESSION_ID_MISSING)
        if keys is not None:
            keys.check(outgoing)
        try:
            return item_of(entity, outgoing)
        except ValueError as error:
            raise ArgumentError(
                f"A message cannot be stored in '{entity.path}': {error}."
            ) from error

    def _encoded(
        self, operation: Operation, entity: model.SendEntity, items: Sequence[Item]
    ) -> bytes:
        """Return the body of an envelope, which RabbitMQ must take as one message."""
        body = envelope.encode(operation, new_identity(), items)
        self._check_size(entity, len(body))
        return body

    def _check_size(self, entity: model.SendEntity, envelope_bytes: int) -> None:
        if envelope_bytes > self.message_bytes_max:
            raise MessageSizeExceeded(
                texts.too_large(entity.path, envelope_bytes, self.message_bytes_max)
            )


def _check_status(entity: model.SendEntity) -> None:
    if (refused := refusal_of_sends(entity)) is not None:
        raise refused
