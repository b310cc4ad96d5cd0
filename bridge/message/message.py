"""Messages that RabbitMQ delivers, read as messages of Service Bus."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.machine.queue.second_copies import Identity
from bridge.model.number import NUMBER_MAX
from bridge.wire import headers
from bridge.wire.basic import FieldValue, Properties, Table, bytes_in
from bridge.wire.copies import Reader
from bridge.wire.record import Record
from bridge.wire.stamp import NO_IDENTITY

EXPIRED_REASON = "TTLExpiredException"
EXPIRED_DESCRIPTION = "The message expired and was dead lettered."
DELIVERY_COUNT_REASON = "MaxDeliveryCountExceeded"
DELIVERY_COUNT_DESCRIPTION = "Message couldn't be consumed after maximum delivery attempts."
REJECTED_REASON = "Rejected"
REJECTED_DESCRIPTION = "A RabbitMQ consumer rejected the message without requeueing it."

EXPIRED = EXPIRED_REASON, EXPIRED_DESCRIPTION
DELIVERY_COUNT_EXCEEDED = DELIVERY_COUNT_REASON, DELIVERY_COUNT_DESCRIPTION

DEATHS: dict[bytes, tuple[str, str]] = {
    b"expired": EXPIRED,
    b"delivery_limit": DELIVERY_COUNT_EXCEEDED,
    b"rejected": (REJECTED_REASON, REJECTED_DESCRIPTION),
}
"""RabbitMQ's reason for a dead letter -> dead-letter reason and description, in Azure's words.

`rejected` has no counterpart in Azure: only a native consumer can reject a message so.
"""

_DELIVERY_COUNT = "x-delivery-count"
_DEATH = "x-first-death-reason"
_ABSENT: FieldValue = ("V", None)
_NO_HEADERS: Table = {}


Facts = tuple[int, int | None, str, Record, int, int | None, int, int, int, Identity]
"""The attributes of a message, in their order."""


@dataclass(slots=True, eq=False)
class Message:
    """A message as it stands in a queue.

    Attributes:
        number: its sequence number, or -1 when it has none.
        expires_ms: when it expires (UTC ms), or `None` for never.
        exchange: the exchange of its last publish.
        record: properties and body.
        enqueued_ms: when it was enqueued (UTC ms).
        time_to_live_ms: its effective TTL, or `None` for ever.
        generation: the deliveries that were counted before it was published again; of two copies
            the one of the higher generation counts.
        failures: failed deliveries before this one, in all; of a dead letter, before it was one.
        deaths: how often engines moved it to the dead-letter queue, from where it may be back.
        identity: shared by all its copies, and by no other message of its entity.
    """

    number: int
    expires_ms: int | None
    exchange: str
    record: Record
    enqueued_ms: int
    time_to_live_ms: int | None
    generation: int
    failures: int
    deaths: int
    identity: Identity

    @property
    def is_numbered(self) -> bool:
        """Whether the message has gone through the sequencer."""
        return self.number >= 0

    @property
    def is_published_again(self) -> bool:
        """Whether the engine has put the message back with changed properties."""
        return headers.DELIVERED in (self.record.properties.headers or _NO_HEADERS)

    @property
    def was_scheduled(self) -> bool:
        """Whether it waited for its time before it became active."""
        return headers.SCHEDULED_NUMBER in (self.record.properties.headers or _NO_HEADERS)

    def died_after(self, max_delivery_count: int) -> int:
        """Failed deliveries before the message was dead-lettered: none is counted after (Azure).

        Args:
            max_delivery_count: RabbitMQ's delivery limit, when RabbitMQ made the dead letter.
        """
        return died_after(self.record.properties.headers or _NO_HEADERS, max_delivery_count)

    @property
    def death(self) -> tuple[str, str] | None:
        """Reason and description of a message that RabbitMQ itself dead-lettered."""
        table = self.record.properties.headers
        return death_of(table) if table and _DEATH in table else None

    @property
    def death_reason(self) -> str:
        """The reason alone; "" for a message that RabbitMQ did not dead-letter."""
        return self.death[0] if self.death is not None else ""

    @property
    def has_died_unnumbered(self) -> bool:
        """Whether RabbitMQ dead-lettered a message that was still to be sent back and numbered."""
        return not self.is_numbered and self.death_reason in (EXPIRED_REASON, DELIVERY_COUNT_REASON)

    def has_come_through(self, active_exchange: str) -> bool:
        """Whether the message was numbered for its queue, or was put back there by an engine."""
        if self.number < 0:
            return False
        return self.exchange == active_exchange or (not self.exchange and self.is_published_again)


def facts(
    raw: bytes, body: bytes, exchange: str, *, can_expire: bool, reader: Reader | None = None
) -> Facts:
    """Return the attributes of a delivered message.

    Args:
        raw: its encoded properties.
        exchange: the exchange of its last publish.
        can_expire: "Messages in a dead-letter queue are not subject to TTL", others are.
        reader: of the subscription whose queue it is; `None`: it is a queue's.

    Raises:
        ValueError: these are no properties.
    """
    properties = Properties.decode(raw)
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
    return (
        number,
        enqueued_ms + ttl_ms if can_expire and ttl_ms >= 0 and number >= 0 else None,
        exchange,
        Record(properties, body),
        enqueued_ms,
        ttl_ms if ttl_ms >= 0 else None,
        generation,
        generation + _integer(table, _DELIVERY_COUNT, 0),
        _deaths(table) if headers.DEAD_LETTERED in table else 0,
        identity,
    )


def unreadable(body: bytes, exchange: str) -> Facts:
    """Return the attributes of a message of which nothing but the body can be read."""
    record = Record(Properties(delivery_mode=2), body)
    return -1, None, exchange, record, 0, None, 0, 0, 0, (-1, 0)


def died_after(table: Table, max_delivery_count: int) -> int:
    """Failed deliveries of a dead letter with these headers: see `Message.died_after`."""
    kind, stamped = table.get(headers.DEAD_LETTERED, _ABSENT)
    if kind == "l" and isinstance(stamped, int):
        return stamped
    if death_of(table) == DELIVERY_COUNT_EXCEEDED:
        return max_delivery_count
    return _integer(table, headers.DELIVERED, 0)


def death_of(table: Table) -> tuple[str, str] | None:
    """Return reason and description of RabbitMQ's own dead letter; `None` for other messages.

    A dead letter that was forwarded, and died once more, has the words of the first time.
    """
    if headers.DEAD_LETTER_REASON in table and headers.DEAD_LETTER_SOURCE not in table:
        return None
    return DEATHS.get(bytes_in(table, _DEATH) or b"") if _DEATH in table else None


def _deaths(table: Table) -> int:
    return max(_integer(table, headers.DEATHS, 1), 1)


def _integer(table: Table, name: str, default: int) -> int:
    field = table.get(name)
    if field is None:
        return default
    value = field[1]
    # A message published straight into a queue may hold a number that no annotation takes.
    return value if isinstance(value, int) and abs(value) <= NUMBER_MAX else default
