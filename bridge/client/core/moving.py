"""What is published when a message leaves its queue otherwise than by being completed. Pure.

dead      to the dead-letter queue, with reason and description, without TTL
aside     to the queue of deferred messages, the count unchanged
back      through the front door, to be numbered: it was published past it
refused   likewise, as a dead letter: it cannot be handled
"""

from __future__ import annotations

from typing import NamedTuple

from bridge.client.core.holding import EXPIRED, Held
from bridge.model import entity as model
from bridge.model.name import SubQueue, short_id
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire import headers
from bridge.wire.basic import Properties, Table, long, text
from bridge.wire.envelope import LAPSED_KIND, REFUSED_KIND
from bridge.wire.mapping.outward import merge_properties

PROPERTIES_BYTES_MAX = 130_000
"""RabbitMQ closes the whole connection over a header frame above 131,064 bytes."""

_ESSENTIAL = (
    headers.SEQUENCE_NUMBER,
    headers.ENQUEUED_TIME,
    headers.NUMBERED,
    headers.IDENTITY,
    headers.TIME_TO_LIVE,
    headers.DEAD_LETTERED,
    headers.MOVED,
    "BCC",
    headers.KIND,
    headers.TARGET,
    headers.DEAD_LETTER_REASON,
    headers.DEAD_LETTER_ERROR_DESCRIPTION,
)
"""Headers that a message keeps when it has too many."""


class Publish(NamedTuple):
    """What is to be published."""

    exchange: str
    key: str
    properties: bytes
    body: bytes


def dead(
    entity: model.ReceiveEntity, held: Held, reason: str | None, description: str | None
) -> Publish:
    """Return what goes to the dead-letter queue, and to the stream of what was moved."""
    changes: Table = {}
    if reason is not None:
        changes[headers.DEAD_LETTER_REASON] = text(reason)
    if description is not None:
        changes[headers.DEAD_LETTER_ERROR_DESCRIPTION] = text(description)
    properties = _clean(merge_properties(held.record, changes).properties)
    queue = names.dead_letter_queue(entity.path)
    table = properties.headers or {}
    for name in (headers.DELIVERED, headers.DEFERRED):
        table.pop(name, None)
    table[headers.DEAD_LETTERED] = long(held.failures)
    return _to(entity, queue, properties, table, held)


def aside(entity: model.ReceiveEntity, held: Held, *, is_dead_letter: bool) -> Publish:
    """Return what is set aside, and goes to the stream of what was moved."""
    changes: Table = {}
    if held.death is not None:
        changes[headers.DEAD_LETTER_REASON] = text(held.death[0])
        changes[headers.DEAD_LETTER_ERROR_DESCRIPTION] = text(held.death[1])
    properties = _clean(merge_properties(held.record, changes).properties)
    sub_queue = SubQueue.DEAD_LETTER if is_dead_letter else SubQueue.NONE
    table = properties.headers or {}
    table[headers.DEFERRED] = text(sub_queue.value)
    table[headers.DELIVERED] = long(held.failures)
    return _to(entity, names.deferred_queue(entity.path), properties, table, held)


def back(entity: model.ReceiveEntity, held: Held) -> Publish:
    """Return what goes through the front door; what RabbitMQ let expire returns as such."""
    properties = held.record.properties
    table = dict(properties.headers or {}) | _target(entity)
    if held.death == EXPIRED:
        table[headers.KIND] = text(LAPSED_KIND)
    if properties.user_id is not None:
        # RabbitMQ would compare it with this connection's user.
        table[headers.BASIC_USER_ID] = text(properties.user_id)
        properties.user_id = None
    properties.headers = table
    return Publish(names.front(entity.front), "", properties.encode(), held.record.body)


def refused(entity: model.ReceiveEntity, held: Held, reason: str, description: str) -> Publish:
    """Return what becomes a dead letter because it cannot be handled."""
    try:
        properties = Properties.decode(held.record.properties.encode())
    except ValueError:
        properties = Properties()
    properties = _clean(properties)
    properties.user_id = None
    table = properties.headers or {}
    table[headers.KIND] = text(REFUSED_KIND)
    table[headers.DEAD_LETTER_REASON] = text(reason)
    table[headers.DEAD_LETTER_ERROR_DESCRIPTION] = text(description[:1_000])
    properties.headers = table | _target(entity)
    return Publish(names.front(entity.front), "", properties.encode(), held.record.body)


def fitting(publish: Publish) -> Publish:
    """Leave out headers that RabbitMQ would close the connection over."""
    if len(publish.properties) <= PROPERTIES_BYTES_MAX:
        return publish
    properties = Properties.decode(publish.properties)
    table = properties.headers or {}
    properties.headers = {name: table[name] for name in _ESSENTIAL if name in table}
    return publish._replace(properties=properties.encode())


def _to(
    entity: model.ReceiveEntity, queue: str, properties: Properties, table: Table, held: Held
) -> Publish:
    """Return what goes to a queue, and by the same publish to the stream of what was moved."""
    table[headers.MOVED] = text(queue)
    table["BCC"] = ("A", [("S", names.moved(entity.front).encode())])
    properties.headers = table
    return Publish("", queue, properties.encode(), held.record.body)


def _target(entity: model.ReceiveEntity) -> Table:
    """Return the header by which a message that goes back is for one subscription."""
    if not isinstance(entity, model.Subscription):
        return {}
    return {headers.TARGET: ("x", short_id(incarnation_of(entity)))}


def _clean(properties: Properties) -> Properties:
    """Take off what only a broker may say, and the expiration."""
    table = properties.headers or {}
    properties.headers = {
        name: field for name, field in table.items() if name not in headers.BROKER_ONLY
    }
    properties.expiration = None
    properties.delivery_mode = 2
    return properties
