"""A delivery of RabbitMQ read as a message of Service Bus, held unacked."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from bridge.client.core.received import Received
from bridge.client.core.wire import Channel, Delivery
from bridge.machine.credit.fetched import Fetched
from bridge.machine.deduplicator import Identity
from bridge.model import entity as model
from bridge.model.name import short_id
from bridge.model.number import NUMBER_MAX
from bridge.topology.definitions import incarnation_of
from bridge.wire import headers
from bridge.wire.basic import FieldValue, Properties, Table
from bridge.wire.copies import Reader
from bridge.wire.record import Record
from bridge.wire.stamp import NO_IDENTITY

EXPIRED = ("TTLExpiredException", "The message expired and was dead lettered.")
EXHAUSTED = (
    "MaxDeliveryCountExceeded",
    "Message couldn't be consumed after maximum delivery attempts.",
)
REJECTED = ("Rejected", "A RabbitMQ consumer rejected the message without requeueing it.")

_DEATHS = {b"expired": EXPIRED, b"delivery_limit": EXHAUSTED, b"rejected": REJECTED}
_ABSENT: FieldValue = ("V", None)
_NO_HEADERS: Table = {}


@dataclass(slots=True, eq=False)
class Held(Fetched):
    """A message that this client holds.

    Attributes:
        expires_ms: when it expires (UTC ms), or `None` for never.
        channel: where it is settled, under `tag`.
        exchange: where it was published last.
        time_to_live_ms: its effective TTL, or `None` for ever.
        generation: deliveries that were counted before it was published again.
        failures: failed deliveries before this one, in all; of a dead letter, before it was one.
        identity: what tells it from other messages.
    """

    expires_ms: int | None
    channel: Channel
    tag: int
    exchange: str
    record: Record
    enqueued_ms: int
    time_to_live_ms: int | None
    generation: int
    failures: int
    identity: Identity

    def has_expired(self, now_ms: int) -> bool:
        """Whether it may not be delivered any more."""
        return (
            bool(self.time_to_live_ms) and self.expires_ms is not None and self.expires_ms <= now_ms
        )

    @property
    def table(self) -> Table:
        """Its headers."""
        return self.record.properties.headers or _NO_HEADERS

    @property
    def was_dead_lettered(self) -> bool:
        """Whether it has been moved to the dead-letter queue, from where it may be back."""
        return headers.DEAD_LETTERED in self.table

    def died_after(self, max_delivery_count: int) -> int:
        """Return the failed deliveries before it became a dead letter: none is counted after.

        Args:
            max_delivery_count: what RabbitMQ counted to when it was the one who made it so.
        """
        kind, stamped = self.table.get(headers.DEAD_LETTERED, _ABSENT)
        if kind == "l" and isinstance(stamped, int):
            return stamped
        return max_delivery_count if self.death == EXHAUSTED else self.generation

    @property
    def death(self) -> tuple[str, str] | None:
        """Reason and description of a message that RabbitMQ itself dead-lettered."""
        if headers.DEAD_LETTER_REASON in self.table:
            return None
        reason = self.table.get("x-first-death-reason", _ABSENT)[1]
        return _DEATHS.get(reason) if isinstance(reason, bytes) else None

    @property
    def has_died_unnumbered(self) -> bool:
        """Whether RabbitMQ made a dead letter of what was still to be numbered."""
        return self.number < 0 and self.death in (EXPIRED, EXHAUSTED)

    def has_come_through(self, active_exchange: str) -> bool:
        """Whether it has been numbered for its queue, or was put back there."""
        if self.exchange == active_exchange:
            return self.number >= 0
        return not self.exchange and self.number >= 0 and headers.DELIVERED in self.table

    def received(self, token: UUID | None = None, until_ms: int | None = None) -> Received:
        """Return it as the application sees it."""
        return Received(
            record=self.record,
            sequence_number=max(self.number, 0),
            enqueued_ms=self.enqueued_ms,
            delivery_count=self.failures,
            lock_token=token,
            locked_until_ms=until_ms,
            time_to_live_ms=self.time_to_live_ms,
            dead_letter=self.death,
        )


@dataclass(slots=True, eq=False)
class Copy:
    """A second copy, unacked."""

    fetch: int
    channel: Channel
    tag: int


def reader_of(entity: model.ReceiveEntity) -> Reader | None:
    """Return what reads messages in a subscription's queues; `None` for a queue's."""
    if not isinstance(entity, model.Subscription):
        return None
    return Reader(short_id(incarnation_of(entity)), entity.default_message_time_to_live_ms)


def read(
    delivery: Delivery, fetch: int, channel: Channel, *, can_expire: bool, reader: Reader | None
) -> Held:
    """Return what a delivery holds; `number` is -1 when it has none.

    Raises:
        ValueError: its properties cannot be read.
    """
    properties = Properties.decode(delivery.properties)
    if reader is not None and properties.headers is not None:
        properties.headers = reader.own(properties.headers)
    table = properties.headers or _NO_HEADERS
    number = _integer(table, headers.SEQUENCE_NUMBER, -1)
    enqueued_ms = _integer(table, headers.ENQUEUED_TIME, 0)
    ttl_ms = _integer(table, headers.TIME_TO_LIVE, -1)
    generation = _integer(table, headers.DELIVERED, 0)
    identity = table.get(headers.IDENTITY, _ABSENT)[1]
    if not isinstance(identity, bytes) or identity == NO_IDENTITY:
        identity = number, enqueued_ms
    return Held(
        number,
        fetch,
        enqueued_ms + ttl_ms if can_expire and ttl_ms >= 0 and number >= 0 else None,
        channel,
        delivery.tag,
        delivery.exchange,
        Record(properties, delivery.body),
        enqueued_ms,
        ttl_ms if ttl_ms >= 0 else None,
        generation,
        generation + _integer(table, "x-delivery-count", 0),
        identity,
    )


def unreadable(delivery: Delivery, fetch: int, channel: Channel) -> Held:
    """Return a delivery of which nothing but the body can be read."""
    record = Record(Properties(delivery_mode=2), delivery.body)
    return Held(
        -1, fetch, None, channel, delivery.tag, delivery.exchange, record, 0, None, 0, 0, (-1, 0)
    )


def _integer(table: Table, name: str, default: int) -> int:
    field = table.get(name)
    if field is None:
        return default
    value = field[1]
    return value if isinstance(value, int) and abs(value) <= NUMBER_MAX else default
