"""The envelope of a commit, made of what a gateway has collected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.engine.settlement.disposition_fields import outcome_of
from bridge.engine.transaction_verbs import PreparedSchedule, PreparedSend, TransactionWork
from bridge.engine.transactions.pins import LockPin
from bridge.engine.transactions.state_pins import StatePin
from bridge.message.envelopes import Outgoing
from bridge.message.transfers import transfer_of
from bridge.model import entity as model
from bridge.model.name import EntityPath, short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire import commits, envelope
from bridge.wire.commits import (
    INQUIRY_BYTES,
    MESSAGE_BYTES,
    CommitContent,
    LockOutcome,
    TransferredEnvelope,
)
from bridge.wire.envelope import Item
from bridge.wire.mapping.inward import KEY_CHARACTERS_MAX
from bridge.wire.reservations import ReservedSchedules

HEAD_BYTES: Final = 128
"""At least the heads of the envelope, of its sections, and of the envelope of its sends."""

_TRANSFER_BYTES: Final = 128
"""At least the head of an envelope, and what says that a message is forwarded."""

_OUTCOME_BYTES: Final = MESSAGE_BYTES + INQUIRY_BYTES + 5
_CANCEL_BYTES: Final = 8

_STATE_BYTES: Final = 64 + 4 * KEY_CHARACTERS_MAX
"""What a session's state takes beside it, with the session's id, at most."""


@dataclass(frozen=True, slots=True)
class PreparedTransfer(PreparedSend):
    """Messages that a transaction sends to another entity than its own.

    Attributes:
        entity: that entity's definition.
        batch: the messages.
    """

    entity: model.SendEntity
    batch: Sequence[Outgoing]


def prepared(
    pinned: EntityPath,
    target: EntityPath,
    entity: model.SendEntity,
    batch: Sequence[Outgoing],
    items: Sequence[Item],
) -> PreparedSend:
    """Return checked messages as a part of a transaction.

    Args:
        entity: the target's definition.
        items: the messages, as they are in an envelope.
    """
    size_bytes = sum(map(envelope.item_bytes, items))
    if is_same(pinned, target):
        return PreparedSend(target, items, size_bytes)
    size_bytes += len(items) * (_TRANSFER_BYTES + len(entity.path.encode()))
    return PreparedTransfer(target, items, size_bytes, entity, batch)


def size_bytes(work: TransactionWork) -> int:
    """Return the size of a commit's envelope, at most some bytes more than it has."""
    outcomes = [outcome_of(each)[1] for _, each in work.settlements]
    return (
        HEAD_BYTES
        + sum(each.size_bytes for each in work.sends)
        + sum(_OUTCOME_BYTES + len(each) for each in outcomes)
        + sum(each.size_bytes for each in work.schedules)
        + len(work.cancels) * _CANCEL_BYTES
        + sum(_STATE_BYTES + len(each.state or b"") for each in work.states)
    )


def is_empty(work: TransactionWork) -> bool:
    """Whether a commit carries nothing out."""
    schedules, cancels = _schedules_and_cancels(work)
    return not (work.sends or work.settlements or schedules.items or cancels or work.states)


def encode(work: TransactionWork, pinned: model.SendEntity) -> bytes:
    """Return the body of a commit's envelope.

    Args:
        pinned: the definition of the pinned entity.
    """
    own = [
        item for each in work.sends if not isinstance(each, PreparedTransfer) for item in each.items
    ]
    outcomes = [
        LockOutcome(pin.message, pin.inquiry, *outcome_of(disposition))
        for pin, disposition in work.settlements
        if isinstance(pin, LockPin)
    ]
    transfers = list(_transfers(work, pinned))
    states = [pin.outcome for pin in last_states(work)]
    schedules, cancels = _schedules_and_cancels(work)
    content = CommitContent(own, transfers, outcomes, cancels, states, schedules)
    return commits.encode(work.identity, content)


def last_states(work: TransactionWork) -> list[StatePin]:
    """Return the pin of each session with the state that it gets, by the last one of several."""
    pins = {each.outcome.message: each for each in work.states if isinstance(each, StatePin)}
    return list(pins.values())


def scheduled(
    target: EntityPath, items: Sequence[Item], numbers: Sequence[int], incarnation: str
) -> PreparedSchedule:
    """Return messages for later, under these numbers, as a part of a transaction."""
    size_bytes = HEAD_BYTES + sum(map(envelope.item_bytes, items)) + len(numbers) * _CANCEL_BYTES
    return PreparedSchedule(target, items, numbers, size_bytes, incarnation)


def _schedules_and_cancels(work: TransactionWork) -> tuple[ReservedSchedules, Sequence[int]]:
    """Return what is scheduled, and what is cancelled, without what is both."""
    placed = [
        (item, number)
        for each in work.schedules
        for item, number in zip(each.items, each.numbers, strict=True)
    ]
    own = {number for _, number in placed}
    both = own.intersection(work.cancels)
    kept = [each for each in placed if each[1] not in both]
    cancels = [each for each in work.cancels if each not in both]
    return ReservedSchedules([item for item, _ in kept], [number for _, number in kept]), cancels


def is_same(pinned: EntityPath, target: EntityPath) -> bool:
    """Whether messages for a target are sends of the pinned entity, and no transfers."""
    return pinned.entity.lower() == target.entity.lower()


def _transfers(work: TransactionWork, pinned: model.SendEntity) -> Iterator[TransferredEnvelope]:
    """Yield an envelope for each message for another entity: the same whenever it is encoded."""
    short = short_id(incarnation_of(pinned))
    place = 0
    for each in work.sends:
        if isinstance(each, PreparedTransfer):
            for outgoing in each.batch:
                yield transfer_of(each.entity, outgoing, work.identity, place, short)
                place += 1
