"""The publications of a message that leaves its queue in another way than by complete.

A message that is moved alive is published twice: to its queue and to the stream of moved messages,
for peeks. By one publish to both RabbitMQ would confirm a message that only the stream has, when
the queue was deleted.

send_back     a message past the front exchange: back through the front exchange, to be numbered
refuse        a message that cannot be handled, or is misplaced: back too, to be dead-lettered
dead_letter   to the dead-letter queue, because a client says so, or as `fate` says
again         back into its own queue, at the end, with changed properties
defer         into the queue of deferred messages
stayed        to the stream alone: a message whose move was refused is where it was
"""

from __future__ import annotations

from dataclasses import replace

from bridge.machine.inbox.publication import Publication
from bridge.message.end_rules import MessagePlace
from bridge.message.message import (
    EXPIRED_REASON,
    Message,
)
from bridge.message.subscriptions import target_of
from bridge.model.name import SubQueue
from bridge.topology import names
from bridge.topology.capabilities import TTL_MAX_MS
from bridge.wire import headers
from bridge.wire.basic import Properties, Table, long, text
from bridge.wire.envelope import EXPIRED_UNNUMBERED_KIND, REFUSED_KIND
from bridge.wire.mapping.outward import merge_properties

PROPERTIES_BYTES_MAX = 130_000
"""RabbitMQ closes the whole connection over a header frame above 131,064 bytes; the rest is left
for headers that RabbitMQ adds when it delivers a message.
"""

Move = tuple[Publication, ...]
"""Publications, the target queue's first; the moved message is acked when all are confirmed."""

_ESSENTIAL = (
    headers.SEQUENCE_NUMBER,
    headers.ENQUEUED_TIME,
    headers.NUMBERED,
    headers.IDENTITY,
    headers.TIME_TO_LIVE,
    headers.DELIVERED,
    headers.DEAD_LETTERED,
    headers.DEATHS,
    headers.DEFERRED,
    headers.MOVED,
    headers.KIND,
    headers.DEAD_LETTER_REASON,
    headers.DEAD_LETTER_ERROR_DESCRIPTION,
)
"""Headers that remain when a message's properties are too large."""


def send_back(place: MessagePlace, message: Message) -> Move:
    """Return the move of a message that was published past the front exchange, to be numbered.

    RabbitMQ may have dead-lettered the message before. An expired message returns as expired; a
    message whose bridges died while they held it was no client's yet, and begins anew.
    """
    properties = message.record.properties
    table = (properties.headers or {}) | target_of(place.queue)
    if message.death_reason == EXPIRED_REASON:
        table[headers.KIND] = text(EXPIRED_UNNUMBERED_KIND)
    if properties.user_id is not None:
        # RabbitMQ would compare the user id with the bridge's own user.
        table[headers.BASIC_USER_ID] = text(properties.user_id)
    properties = replace(properties, headers=table, user_id=None)
    return _to_front(place, properties, message)


def refuse(place: MessagePlace, message: Message, reason: str, description: str) -> Move:
    """Return the move of a message that cannot be handled, or is misplaced, to be dead-lettered."""
    try:
        properties = Properties.decode(message.record.properties.encode())
    except ValueError:
        properties = Properties()
    properties = _clean(properties)
    properties.user_id = None
    assert properties.headers is not None
    properties.headers[headers.KIND] = text(REFUSED_KIND)
    properties.headers[headers.DEAD_LETTER_REASON] = text(reason)
    properties.headers[headers.DEAD_LETTER_ERROR_DESCRIPTION] = text(description[:1_000])
    properties.headers |= target_of(place.queue)
    return _to_front(place, properties, message)


def dead_letter(
    place: MessagePlace,
    message: Message,
    reason: str | None,
    description: str | None,
    changes: Table,
    failures: int,
) -> Move:
    """Return the move to the dead-letter queue: no TTL, and the reason as Azure has it.

    Args:
        failures: the failed deliveries that the message has then, and keeps.
    """
    changes = dict(changes)
    if reason is not None:
        changes[headers.DEAD_LETTER_REASON] = text(reason)
    if description is not None:
        changes[headers.DEAD_LETTER_ERROR_DESCRIPTION] = text(description)
    properties = _clean(merge_properties(message.record, changes).properties)
    assert properties.headers is not None
    properties.headers.pop(headers.DELIVERED, None)
    properties.headers.pop(headers.DEFERRED, None)
    properties.headers[headers.DEAD_LETTERED] = long(failures)
    if message.deaths:
        properties.headers[headers.DEATHS] = long(message.deaths + 1)
    return _to(place, names.dead_letter_queue(place.queue.path), properties, message)


def next_generation(message: Message) -> int:
    """Return a greater generation than any copy of a message has, to publish it again.

    It counts the failed deliveries, too; those of a dead letter have ended, and rise no more.
    """
    return max(message.failures, message.generation) + 1


def again(
    place: MessagePlace, message: Message, changes: Table, generation: int, now_ms: int
) -> Move:
    """Return the move back into a message's own queue, with the rest of its TTL.

    Args:
        generation: that the message has then; but for a dead letter, its failed deliveries, too.
    """
    properties = _counted(place, message, changes, generation)
    if message.expires_ms is not None:
        left_ms = max(message.expires_ms - now_ms, 0)
        properties.expiration = str(left_ms) if left_ms <= TTL_MAX_MS else None
    return _to(place, place.resource, properties, message)


def defer(place: MessagePlace, message: Message, changes: Table) -> Move:
    """Return the move to the queue of deferred messages; deferring counts a delivery.

    The first receiver by number sees 1 (Azure's JavaScript live tests deferredMessage,
    batchReceiver, receiveAndDelete). Only a later failure compares the count with its maximum.
    """
    properties = _changed(message, changes)
    assert properties.headers is not None
    sub_queue = SubQueue.DEAD_LETTER if place.is_dead_letter else SubQueue.NONE
    properties.headers[headers.DEFERRED] = text(sub_queue.value)
    properties.headers[headers.DELIVERED] = long(next_generation(message))
    return _to(place, names.deferred_queue(place.queue.path), properties, message)


def stayed(place: MessagePlace, message: Message) -> Publication:
    """Return the publication that tells peeks that a message has not moved.

    When the target queue of a move refuses a message, the stream of moved messages may have taken
    it all the same, and would say that the message has left.
    """
    properties = _counted(place, message, {}, message.failures)
    _, entry = fitting(_to(place, place.resource, properties, message))
    return entry


def _counted(place: MessagePlace, message: Message, changes: Table, generation: int) -> Properties:
    """Return a message's properties in its own queue, as this generation."""
    properties = _changed(message, changes)
    assert properties.headers is not None
    properties.headers[headers.DELIVERED] = long(generation)
    if place.is_dead_letter:
        properties.headers[headers.DEAD_LETTERED] = long(message.failures)
    return properties


def _to(place: MessagePlace, queue: str, properties: Properties, message: Message) -> Move:
    """Return the publications to a queue and to the stream of moved messages."""
    assert properties.headers is not None
    properties.headers[headers.MOVED] = text(queue)
    encoded, body = properties.encode(), message.record.body
    stream = names.moved(place.queue.front)
    return Publication("", queue, encoded, body), Publication("", stream, encoded, body)


def _to_front(place: MessagePlace, properties: Properties, message: Message) -> Move:
    front = names.front(place.queue.front)
    return (Publication(front, "", properties.encode(), message.record.body),)


def _changed(message: Message, changes: Table) -> Properties:
    """Return a message's properties with changes.

    RabbitMQ's reason for a dead letter is no header of ours, and would be lost.
    """
    if message.death is not None:
        reason, description = message.death
        because = {
            headers.DEAD_LETTER_REASON: text(reason),
            headers.DEAD_LETTER_ERROR_DESCRIPTION: text(description),
        }
        changes = because | changes
    return _clean(merge_properties(message.record, changes).properties)


def _clean(properties: Properties) -> Properties:
    """Remove headers that only a broker may write, and the expiration."""
    table = properties.headers or {}
    properties.headers = {
        name: field for name, field in table.items() if name not in headers.BROKER_ONLY
    }
    properties.expiration = None
    properties.delivery_mode = 2
    return properties


def fitting(publishes: Move) -> Move:
    """Drop headers of a message over whose size RabbitMQ would close the connection."""
    encoded = publishes[0].properties
    if len(encoded) <= PROPERTIES_BYTES_MAX:
        return publishes
    properties = Properties.decode(encoded)
    table = properties.headers or {}
    properties.headers = {name: table[name] for name in _ESSENTIAL if name in table}
    encoded = properties.encode()
    return tuple(publish._replace(properties=encoded) for publish in publishes)
