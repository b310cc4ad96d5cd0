"""What a message becomes when it is forwarded, or why it cannot be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bridge.engine import texts
from bridge.engine.sending.requests import new_identity
from bridge.machine.fanout import NO_SESSION_DESCRIPTION, NO_SESSION_REASON
from bridge.message.envelopes import Outgoing, encode_forwarded
from bridge.message.message import Message
from bridge.model import entity as model
from bridge.model.errors import (
    EntityDisabled,
    EntityNotFound,
    MessageSizeExceeded,
    QuotaExceeded,
    ServiceBusError,
)
from bridge.model.name import short_id
from bridge.model.tiers import message_size_max_bytes
from bridge.topology.definitions import incarnation_of
from bridge.wire import forwarded, headers
from bridge.wire.basic import Table, long, text
from bridge.wire.record import Record
from bridge.wire.sessions import session_id_in

TOO_MANY_HOPS_REASON = "MaxTransferHopCountExceeded"
HEADERS_TOO_LARGE_REASON = "HeaderSizeExceeded"

_REASONS: dict[type[ServiceBusError], str] = {
    EntityNotFound: "MessagingEntityNotFoundException",
    EntityDisabled: "MessagingEntityDisabledException",
    QuotaExceeded: "QuotaExceededException",
    MessageSizeExceeded: "MessageSizeExceededException",
}
"""Why a target takes no message -> the name of Azure's exception for it, as a dead letter's reason;
so Azure names what a filter has failed with."""


class CannotForward(Exception):
    """A message cannot be forwarded.

    Attributes:
        reason, description: those of its dead letter.
        is_for_good: it is the message that is at fault, and not the target's state.
    """

    def __init__(self, reason: str, description: str, *, is_for_good: bool) -> None:
        super().__init__(f"{reason}: {description}")
        self.reason = reason
        self.description = description
        self.is_for_good = is_for_good


@dataclass(frozen=True, slots=True)
class Source:
    """What messages are forwarded from.

    Attributes:
        entity: its definition.
        is_dead_letter: it is the entity's dead-letter queue.
    """

    entity: model.ReceiveEntity
    is_dead_letter: bool

    @property
    def key(self) -> bytes:
        """What names it to a target."""
        short = short_id(incarnation_of(self.entity))
        return forwarded.source_of(short, is_dead_letter=self.is_dead_letter)


def refused(error: ServiceBusError) -> CannotForward:
    """Return why a target takes nothing, as a dead letter says it."""
    reason = _REASONS.get(type(error), type(error).__name__)
    return CannotForward(reason, str(error), is_for_good=False)


def envelope_of(
    holding: Message, source: Source, target: model.SendEntity, tier: model.Tier
) -> bytes:
    """Return the envelope by which a message goes on to its target.

    It is a new message there, but for its content: the target counts its TTL from then.

    Raises:
        CannotForward: the target does not take such a message.
    """
    table = holding.record.properties.headers or {}
    hops = forwarded.hops_of(table)
    if hops >= forwarded.HOPS_MAX:
        raise CannotForward(TOO_MANY_HOPS_REASON, texts.TOO_MANY_HOPS, is_for_good=True)
    size_bytes = len(holding.record.body)
    limit_bytes = message_size_max_bytes(target, tier)
    if size_bytes > limit_bytes:
        error = MessageSizeExceeded(texts.too_large(target.path, size_bytes, limit_bytes))
        raise CannotForward(_REASONS[MessageSizeExceeded], str(error), is_for_good=True)
    session_id = session_id_in(table)
    if isinstance(target, model.Queue) and target.requires_session and session_id is None:
        raise CannotForward(NO_SESSION_REASON, NO_SESSION_DESCRIPTION, is_for_good=True)
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
    """Return the identity of its envelope.

    What has none, and no number, may be doubled by a kill.
    """
    if not holding.is_numbered and not isinstance(holding.identity, bytes):
        return new_identity()
    return forwarded.identity_of(key, holding.identity)


def _content(holding: Message, table: Table) -> Record:
    """Return the message with the TTL that its sender gave it, not with its source's."""
    kept = dict(table)
    if headers.OWN_TIME_TO_LIVE not in table:
        kept.pop(headers.TIME_TO_LIVE, None)
    return Record(replace(holding.record.properties, headers=kept), holding.record.body)


def _own(holding: Message, source: Source, table: Table, hops: int) -> Table:
    """Return what the forwarder says of a message."""
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
