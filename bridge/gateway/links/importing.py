"""A link on which a migration stores messages under the numbers that they had elsewhere.

Its attach names the run, which must hold the entity. Each transfer waits for the answer to the one
before: a number that was passed over can never be given. So what comes behind a transfer that was
refused, or whose outcome is unknown, is refused, too, until the link is attached again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from bridge.engine.texts import too_large
from bridge.gateway.client import texts
from bridge.gateway.client.client import Client
from bridge.gateway.links.sending import SendingLink
from bridge.machine.amqp10.events import MessageArrived
from bridge.machine.amqp10.link import IncomingLink
from bridge.message.envelopes import ImportedMessage
from bridge.model.availability import check_run
from bridge.model.entity import Queue, Right, Subscription
from bridge.model.errors import (
    ArgumentOutOfRange,
    EntityConflict,
    InvalidField,
    MessageSizeExceeded,
    NotImplementedHere,
    ServiceBusError,
)
from bridge.model.name import EntityPath, SubQueue, parse_path, short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire import headers, imported
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import BATCH_FORMAT, batch_messages
from bridge.wire.amqp10.performatives import TransactionalState
from bridge.wire.basic import Table, long, text
from bridge.wire.gaps import OWN
from bridge.wire.imported import SCHEDULED, Imported
from bridge.wire.link_properties import IMPORT
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.imported import ImportFacts, import_facts
from bridge.wire.mapping.inward import record_from_message

MESSAGES_MAX = 100
"""The most messages of one transfer: a leader numbers them in one go."""

ANNOTATIONS_BYTES = 2_048
"""Room for the annotations beside the largest message: more than they need."""


def run_of(properties: Mapping[Any, Any] | None) -> str | None:
    """Return the run that an attach names; `None` for none.

    Raises:
        ArgumentError: it is no name of a run.
    """
    found = (properties or {}).get(IMPORT)
    return None if found is None else check_run(found)


class ImportingLink(SendingLink):
    """A migration's sender.

    Args:
        path: what the link's address names: a queue, a topic, a subscription, or a dead-letter
            queue, into which all messages go then.
        run: the name of the run.
    """

    right = Right.MANAGE

    def __init__(self, client: Client, link: IncomingLink, path: EntityPath, run: str) -> None:
        self._run = run
        self._is_dead = path.sub_queue is SubQueue.DEAD_LETTER
        self._whole = EntityPath(path.entity)
        entity = client.namespace.entity(self._whole)
        self._subscription = entity.name if isinstance(entity, Subscription) else ""
        front = entity.topic if isinstance(entity, Subscription) else entity.path
        self._front = EntityPath(front)
        client.namespace.importing.check(self._whole, run)
        self._waiting: deque[MessageArrived] = deque()
        self._stopped_by: ServiceBusError | None = None
        limit_bytes = client.namespace.message_bytes_max(self._front) + ANNOTATIONS_BYTES
        super().__init__(client, link, path, limit_bytes, said={IMPORT: run})

    def on_message(self, event: MessageArrived) -> None:
        """Take a transfer; it is stored when all before it are."""
        self._under_way += 1
        self._count(event, 1)
        self._waiting.append(event)
        if len(self._waiting) == 1:
            self.client.links.spawn(self.link, self._store_in_order())

    async def _store_in_order(self) -> None:
        try:
            while self._waiting:
                error = await self._store(self._waiting[0])
                self._stopped_by = self._stopped_by or error
                self._on_sent(self._waiting.popleft(), error)
        finally:
            while self._waiting:
                self._count(self._waiting.popleft(), -1)

    async def _store(self, event: MessageArrived) -> ServiceBusError | None:
        """Store a transfer; return why it is not stored, or why that is unknown."""
        if self._stopped_by is not None:
            return EntityConflict(texts.IMPORT_STOPPED.format(why=self._stopped_by))
        try:
            is_batch = event.message_format == BATCH_FORMAT
            self._check(event, is_batch=is_batch)
            raw = list(batch_messages(event.payload)) if is_batch else [event.payload]
            if len(raw) > MESSAGES_MAX:
                raise ArgumentOutOfRange(
                    texts.IMPORT_TOO_MANY.format(count=len(raw), most=MESSAGES_MAX)
                )
            batch = [self._message(each) for each in raw]
            if batch:
                await self.client.namespace.importing.store(self._front, self._run, batch)
        except ServiceBusError as error:
            return error
        except (MappingError, DecodeError) as error:
            return InvalidField(f"The transfer cannot be read: {error}")
        return None

    def _check(self, event: MessageArrived, *, is_batch: bool) -> None:
        """Refuse what is part of a transaction, and a batch that is too large."""
        size_bytes = len(event.payload)
        if isinstance(event.state, TransactionalState):
            raise NotImplementedHere(texts.NO_TRANSACTION_OF_COPIES)
        if is_batch and size_bytes > self._batch_bytes_max:
            raise MessageSizeExceeded(too_large(str(self.path), size_bytes, self._batch_bytes_max))

    def _message(self, raw: bytes) -> ImportedMessage:
        """Return one encoded message in the engine's form.

        Raises:
            MappingError, ServiceBusError: the message is refused.
        """
        bare, facts = import_facts(raw)
        place = f"{self._front}/{self._subscription}/{self._is_dead}"
        identity = imported.identity_of(self._run, place, raw)
        inward = record_from_message(bare, new_message_id=identity[:16].hex())
        if facts.state == SCHEDULED and inward.scheduled_ms is None:
            raise InvalidField(texts.NO_TIME.format(number=facts.number))
        return ImportedMessage(
            record=inward.record,
            size_bytes=len(bare),
            scheduled_ms=inward.scheduled_ms if facts.state == SCHEDULED else None,
            session_id=inward.session_id,
            imported=self._imported(facts, identity),
            own=_own(facts),
        )

    def _imported(self, facts: ImportFacts, identity: bytes) -> Imported:
        is_dead = facts.is_dead or self._is_dead
        short, topics_number = OWN, 0
        name = facts.subscription or self._subscription
        is_queue = isinstance(self.client.namespace.send_entity(self._front), Queue)
        if is_dead and facts.state == SCHEDULED:
            raise InvalidField(texts.DEAD_AND_SCHEDULED.format(number=facts.number))
        if is_queue and name:
            raise InvalidField(texts.NO_SUBSCRIPTIONS.format(path=self._front))
        if not is_queue and facts.state != SCHEDULED:
            if not name or not facts.enqueued_number:
                raise InvalidField(texts.NO_SUBSCRIPTION_NAMED.format(number=facts.number))
            path = parse_path(f"{self._front}/Subscriptions/{name}")
            subscription = self.client.namespace.receive_entity(path)
            short = short_id(incarnation_of(subscription))
            topics_number = facts.enqueued_number
        return Imported(
            facts.number,
            facts.enqueued_ms,
            facts.state,
            is_dead,
            facts.deliveries,
            short,
            topics_number,
            identity,
        )


def _own(facts: ImportFacts) -> Table:
    """Return the headers that only the service writes."""
    found: Table = {}
    if facts.enqueued_number:
        found[headers.ENQUEUED_SEQUENCE_NUMBER] = long(facts.enqueued_number)
    if facts.dead_letter_source:
        found[headers.DEAD_LETTER_SOURCE] = text(facts.dead_letter_source)
    return found
