"""The envelope of a forwarded message, and the limit of its hops."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bridge.engine import texts
from bridge.engine.forwarding.targets import CannotForward, check_message
from bridge.engine.sending.requests import new_identity
from bridge.message.envelopes import Outgoing, encode_forwarded
from bridge.message.message import Message
from bridge.model import entity as model
from bridge.model.name import short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire import forwarded, headers
from bridge.wire.basic import Table, long, text
from bridge.wire.record import Record
from bridge.wire.sessions import session_id_in

TOO_MANY_HOPS_REASON = "MaxTransferHopCountExceeded"
HEADERS_TOO_LARGE_REASON = "HeaderSizeExceeded"


@dataclass(frozen=True, slots=True)
class ForwardingSource:
    """The queue that messages are forwarded from.

    Attributes:
        entity: the entity's definition.
        is_dead_letter: whether the queue is the entity's dead-letter queue.
    """

    entity: model.ReceiveEntity
    is_dead_letter: bool

    @property
    def key(self) -> bytes:
        """The source's name at a target."""
        short = short_id(incarnation_of(self.entity))
        return forwarded.source_of(short, is_dead_letter=self.is_dead_letter)


def envelope_of(
    holding: Message, source: ForwardingSource, target: model.SendEntity, tier: model.Tier
) -> bytes:
    """Return the envelope that forwards a message to its target.

    At the target it is a new message with the same content; its TTL begins there anew.

    Raises:
        CannotForward: the target does not take such a message.
    """
    table = holding.record.properties.headers or {}
    hops = forwarded.hops_of(table)
    if hops >= forwarded.HOPS_MAX:
        raise CannotForward(TOO_MANY_HOPS_REASON, texts.TOO_MANY_HOPS, is_for_good=True)
    size_bytes = len(holding.record.body)
    session_id = session_id_in(table)
    check_message(target, tier, size_bytes, session_id)
    key = source.key
    try:
        return encode_forwarded(
            target,
            Outgoing(
                record=_content(holding, table),
                size_bytes=size_bytes,
                session_id=session_id,
            ),
            _identity_of(key, holding),
            key,
            _own(holding, source, table, hops + 1),
        )
    except ValueError as error:
        raise CannotForward(
            HEADERS_TOO_LARGE_REASON, f"{texts.HEADERS_TOO_LARGE} {error}", is_for_good=True
        ) from error


def _identity_of(key: bytes, holding: Message) -> bytes:
    """Return the identity of a message's envelope.

    A message without an identity or a number gets a random one: a kill may double it.
    """
    if not holding.is_numbered and not isinstance(holding.identity, bytes):
        return new_identity()
    return forwarded.identity_of(key, holding.identity)


def _content(holding: Message, table: Table) -> Record:
    """Return a message with the TTL that its sender gave, without the source entity's TTL."""
    kept = dict(table)
    if headers.OWN_TIME_TO_LIVE not in table:
        kept.pop(headers.TIME_TO_LIVE, None)
    return Record(replace(holding.record.properties, headers=kept), holding.record.body)


def _own(holding: Message, source: ForwardingSource, table: Table, hops: int) -> Table:
    """Return the headers that the forwarder adds to a message."""
    found: Table = {headers.FORWARDED: forwarded.field(source.key, hops)}
    first = table.get(headers.ENQUEUED_SEQUENCE_NUMBER)
    if first is not None or holding.is_numbered:
        found[headers.ENQUEUED_SEQUENCE_NUMBER] = first or long(holding.number)
    if not source.is_dead_letter:
        return found
    found[headers.DEAD_LETTER_SOURCE] = text(source.entity.path)
    if holding.death is not None:
        reason, description = holding.death
        found[headers.DEAD_LETTER_REASON] = text(reason)
        found[headers.DEAD_LETTER_ERROR_DESCRIPTION] = text(description)
    return found
