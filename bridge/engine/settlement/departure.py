"""How a message leaves its queue otherwise than by being completed: by hand-over, and then an ack.

send_back     published past the front door: goes back through it, to be numbered
dead_letter   to the dead-letter queue, because a client says so
expire        its time is over: to the dead-letter queue, or nowhere, as the entity says
exhaust       failed too often: to the dead-letter queue
refuse        cannot be handled, or came where nothing should: to the dead-letter queue, numbered
again         abandoned with changed properties: back into its queue, at the end
lapse         deferred, or of a session, and its lock has ended: back into its queue
end           its entity does not allow it: to the dead-letter queue
defer         set aside, because a client says so: into the queue of deferred messages
drop          a second copy: nowhere
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from bridge.broker import failpoint as failpoints
from bridge.broker.errors import AckLost, BrokerError, PublishRefused
from bridge.broker.handover import Publish
from bridge.broker.retry import retry
from bridge.engine import texts
from bridge.engine.clock import now_ms
from bridge.engine.counters import Counters
from bridge.engine.poison import Poison
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.holding import (
    EXHAUSTED_DESCRIPTION,
    EXHAUSTED_REASON,
    EXPIRED_DESCRIPTION,
    EXPIRED_REASON,
    Copy,
    Holding,
)
from bridge.engine.subscriptions import target_of
from bridge.machine.deduplicator import Left
from bridge.model import entity as model
from bridge.model.errors import ArgumentOutOfRange, QuotaExceeded, ServiceBusError
from bridge.model.name import SubQueue
from bridge.topology import names
from bridge.topology.capabilities import TTL_MAX_MS
from bridge.wire import headers
from bridge.wire.basic import Properties, Table, long, text
from bridge.wire.envelope import LAPSED_KIND, REFUSED_KIND
from bridge.wire.mapping.outward import merge_properties

DEPARTING_PROPERTIES_BYTES_MAX = 130_000
"""RabbitMQ closes the whole connection over a header frame above 131,064 bytes; some are left for
what it adds itself when it delivers a message."""

RETRY_S = 1.0
"""RabbitMQ takes nothing while it has an alarm or elects a leader; the message waits here."""

_ESSENTIAL = (
    headers.SEQUENCE_NUMBER,
    headers.ENQUEUED_TIME,
    headers.NUMBERED,
    headers.IDENTITY,
    headers.TIME_TO_LIVE,
    headers.DELIVERED,
    headers.DEAD_LETTERED,
    headers.DEFERRED,
    headers.MOVED,
    "BCC",
    headers.KIND,
    headers.DEAD_LETTER_REASON,
    headers.DEAD_LETTER_ERROR_DESCRIPTION,
)
"""Headers that a message keeps when it has too many."""

Done = Callable[[BrokerError | None], None]


class Origin(Protocol):
    """What a message leaves."""

    @property
    def queue(self) -> model.ReceiveEntity:
        """The entity's definition."""

    @property
    def resource(self) -> str:
        """The RabbitMQ queue's name."""

    @property
    def is_dead_letter(self) -> bool:
        """Whether that is a dead-letter queue."""

    @property
    def is_deferred(self) -> bool:
        """Whether its messages are deferred."""

    def putting_back(self, holding: Holding, generation: int) -> None:
        """The message is about to be published into its queue again."""

    def left(self, holding: Holding, how: Left) -> None:
        """The message is in this queue no more."""


class Departure:
    """Moves messages out of their queues.

    Attributes:
        poison: what could not be handled is noted there.
    """

    def __init__(self, sender: Sender, counters: Counters, poison: Poison) -> None:
        self.poison = poison
        self._sender = sender
        self._counters = counters
        self._under_way: set[asyncio.Task[None]] = set()

    def send_back(self, origin: Origin, holding: Holding) -> None:
        """Have a message numbered that was published past the front door.

        RabbitMQ may have made it a dead letter before: one that expired returns as such; one whose
        bridges died while they held it was no client's yet, and begins anew.
        """
        properties = holding.record.properties
        properties.headers = (properties.headers or {}) | target_of(origin.queue)
        if holding.death_reason == EXPIRED_REASON:
            properties.headers[headers.KIND] = text(LAPSED_KIND)
        if properties.user_id is not None:
            # RabbitMQ would compare it with the bridge's own user.
            table = dict(properties.headers or {})
            table[headers.BASIC_USER_ID] = text(properties.user_id)
            properties.headers, properties.user_id = table, None
        publish = Publish(
            names.front(origin.queue.front), "", properties.encode(), holding.record.body
        )
        self._counters.sent_back += 1
        self._surely(origin, holding, publish, "engine.send_back")

    def refuse(self, origin: Origin, holding: Holding, reason: str, description: str) -> None:
        """Have a message made a dead letter that cannot be handled, or came where none should."""
        try:
            properties = Properties.decode(holding.record.properties.encode())
        except ValueError:
            properties = Properties()
        properties = _clean(properties)
        properties.user_id = None
        assert properties.headers is not None
        properties.headers[headers.KIND] = text(REFUSED_KIND)
        properties.headers[headers.DEAD_LETTER_REASON] = text(reason)
        properties.headers[headers.DEAD_LETTER_ERROR_DESCRIPTION] = text(description[:1_000])
        properties.headers |= target_of(origin.queue)
        front = names.front(origin.queue.front)
        publish = Publish(front, "", properties.encode(), holding.record.body)
        self._counters.sent_back += 1
        self._surely(origin, holding, publish, "engine.send_back")

    def note_second_copy(self) -> None:
        """Count a second copy that was dropped."""
        self._counters.second_copies += 1

    def drop(self, copy: Copy) -> None:
        """Ack a second copy."""
        self.note_second_copy()
        _ack(copy, "engine.drop.acked")

    def expire(self, origin: Origin, holding: Holding) -> None:
        """End a message whose time is over."""
        self._counters.expired += 1
        if origin.queue.dead_lettering_on_message_expiration:
            dead = _dead(origin, holding, EXPIRED_REASON, EXPIRED_DESCRIPTION, {})
            self._surely(origin, holding, dead, "engine.expire", Left.DEAD_LETTERED)
        else:
            _ack(holding, "engine.expire.acked")
            origin.left(holding, Left.SETTLED)

    def exhaust(self, origin: Origin, holding: Holding) -> None:
        """End a message that has failed too often."""
        dead = _dead(origin, holding, EXHAUSTED_REASON, EXHAUSTED_DESCRIPTION, {})
        self._surely(origin, holding, dead, "engine.exhaust", Left.DEAD_LETTERED)

    def end(self, origin: Origin, holding: Holding, reason: str, description: str) -> None:
        """End a message that its entity does not allow."""
        dead = _dead(origin, holding, reason, description, {})
        self._surely(origin, holding, dead, "engine.dead_letter")

    async def dead_letter(
        self,
        origin: Origin,
        holding: Holding,
        reason: str | None,
        description: str | None,
        changes: Table,
    ) -> None:
        """Move a message to the dead-letter queue.

        Raises:
            ArgumentOutOfRange: its properties would be more than RabbitMQ takes.
            ServerBusy, BrokerError: it is where it was, still held.
        """
        dead = _dead(origin, holding, reason, description, changes)
        await self._move(origin, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)

    async def again(self, origin: Origin, holding: Holding, changes: Table) -> None:
        """Put a message back with changed properties, one more on its count.

        Raises:
            ArgumentOutOfRange: its properties would be more than RabbitMQ takes.
            ServerBusy, BrokerError: it is where it was, still held.
        """
        failures = holding.failures + 1
        if holding.expires_ms is not None and holding.expires_ms <= now_ms():
            self.expire(origin, holding)
            return
        if failures >= origin.queue.max_delivery_count and not origin.is_dead_letter:
            holding.failures = failures
            dead = _dead(origin, holding, EXHAUSTED_REASON, EXHAUSTED_DESCRIPTION, changes)
            await self._move(origin, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)
            return
        publish = _again(origin, holding, changes, failures)
        origin.putting_back(holding, failures)
        await self._move(origin, holding, publish, "engine.again", Left.REPLACED)

    def lapse(self, origin: Origin, holding: Holding) -> None:
        """Put a deferred or session's message back whose lock has ended, one more on its count."""
        failures = holding.failures + 1
        if failures >= origin.queue.max_delivery_count and not origin.is_dead_letter:
            holding.failures = failures
            self.exhaust(origin, holding)
        else:
            publish = _again(origin, holding, {}, failures)
            self._surely(origin, holding, publish, "engine.again", Left.REPLACED)

    async def defer(self, origin: Origin, holding: Holding, changes: Table) -> None:
        """Set a message aside, its count unchanged.

        Raises:
            ArgumentOutOfRange: its properties would be more than RabbitMQ takes.
            QuotaExceeded, ServerBusy, BrokerError: it is where it was, still held.
        """
        properties = _changed(holding, changes)
        assert properties.headers is not None
        sub_queue = SubQueue.DEAD_LETTER if origin.is_dead_letter else SubQueue.NONE
        properties.headers[headers.DEFERRED] = text(sub_queue.value)
        properties.headers[headers.DELIVERED] = long(holding.failures)
        publish = _to(origin, names.deferred_queue(origin.queue.path), properties, holding)
        try:
            how = Left.REPLACED if origin.is_deferred else Left.MOVED
            await self._move(origin, holding, publish, "engine.defer", how)
        except PublishRefused as error:
            raise QuotaExceeded(texts.deferred_full(origin.queue.path)) from error

    async def _move(
        self,
        origin: Origin,
        holding: Holding,
        publish: Publish,
        failpoint: str,
        how: Left = Left.MOVED,
    ) -> None:
        size_bytes = len(publish.properties)
        if size_bytes > DEPARTING_PROPERTIES_BYTES_MAX:
            raise ArgumentOutOfRange(
                texts.properties_too_large(
                    origin.queue.path, size_bytes, DEPARTING_PROPERTIES_BYTES_MAX
                )
            )
        acks = ((holding.channel, holding.tag),)
        await self._sender.move(publish, acks=acks, failpoint=failpoint)
        origin.left(holding, how)

    def _surely(
        self,
        origin: Origin,
        holding: Holding,
        publish: Publish,
        failpoint: str,
        how: Left = Left.MOVED,
    ) -> None:
        """Hand over, and try again until it is done or RabbitMQ has taken the message back."""
        acks = ((holding.channel, holding.tag),)
        move = partial(self._sender.move, _fitting(publish), acks=acks, failpoint=failpoint)

        async def attempt() -> None:
            if holding.channel.close_reason is None:
                await move()
                origin.left(holding, how)

        async def surely() -> None:
            with suppress(AckLost):
                await retry(attempt, wait_s=RETRY_S, retryable=_is_passing)

        task = asyncio.get_running_loop().create_task(surely(), name=f"departure {failpoint}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


def _is_passing(error: BaseException) -> bool:
    """Whether a hand-over may succeed later; one whose ack was lost has been published."""
    return isinstance(error, ServiceBusError | BrokerError) and not isinstance(error, AckLost)


def _fitting(publish: Publish) -> Publish:
    """Leave out headers of a message that RabbitMQ would close the connection over."""
    if len(publish.properties) <= DEPARTING_PROPERTIES_BYTES_MAX:
        return publish
    properties = Properties.decode(publish.properties)
    table = properties.headers or {}
    properties.headers = {name: table[name] for name in _ESSENTIAL if name in table}
    return publish._replace(properties=properties.encode())


def _ack(settled: Holding | Copy, point: str) -> None:
    settled.channel.consumers.ack(settled.tag)
    if failpoints.IS_ARMED:
        settled.channel.flush()
        failpoints.reach(point)


def _dead(
    origin: Origin,
    holding: Holding,
    reason: str | None,
    description: str | None,
    changes: Table,
) -> Publish:
    """Return what goes to the dead-letter queue: no TTL, and the reason as Azure has it."""
    changes = dict(changes)
    if reason is not None:
        changes[headers.DEAD_LETTER_REASON] = text(reason)
    if description is not None:
        changes[headers.DEAD_LETTER_ERROR_DESCRIPTION] = text(description)
    properties = _clean(merge_properties(holding.record, changes).properties)
    assert properties.headers is not None
    properties.headers.pop(headers.DELIVERED, None)
    properties.headers.pop(headers.DEFERRED, None)
    properties.headers[headers.DEAD_LETTERED] = long(holding.failures)
    return _to(origin, names.dead_letter_queue(origin.queue.path), properties, holding)


def _again(origin: Origin, holding: Holding, changes: Table, failures: int) -> Publish:
    """Return what goes back into a message's own queue, with what is left of its TTL."""
    properties = _changed(holding, changes)
    assert properties.headers is not None
    properties.headers[headers.DELIVERED] = long(failures)
    if origin.is_dead_letter:
        properties.headers[headers.DEAD_LETTERED] = long(holding.failures)
    if holding.expires_ms is not None:
        left_ms = holding.expires_ms - now_ms()
        properties.expiration = str(left_ms) if left_ms <= TTL_MAX_MS else None
    return _to(origin, origin.resource, properties, holding)


def _to(origin: Origin, queue: str, properties: Properties, holding: Holding) -> Publish:
    """Return what goes to a queue, and by the same publish to the stream of what was moved."""
    assert properties.headers is not None
    stream = names.moved(origin.queue.front)
    properties.headers[headers.MOVED] = text(queue)
    properties.headers["BCC"] = ("A", [("S", stream.encode())])
    return Publish("", queue, properties.encode(), holding.record.body)


def _changed(holding: Holding, changes: Table) -> Properties:
    """Return a message's properties with changes.

    Why RabbitMQ dead-lettered it is no header of ours, and would be lost.
    """
    if holding.death is not None:
        reason, description = holding.death
        because = {
            headers.DEAD_LETTER_REASON: text(reason),
            headers.DEAD_LETTER_ERROR_DESCRIPTION: text(description),
        }
        changes = because | changes
    return _clean(merge_properties(holding.record, changes).properties)


def _clean(properties: Properties) -> Properties:
    """Take off what only a broker may say, and the expiration."""
    table = properties.headers or {}
    properties.headers = {
        name: field for name, field in table.items() if name not in headers.BROKER_ONLY
    }
    properties.expiration = None
    properties.delivery_mode = 2
    return properties
