"""The envelope of a commit, made of what a gateway has collected."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from bridge.engine.settlement.disposition_fields import outcome_of
from bridge.engine.transaction_verbs import PreparedSend, TransactionWork
from bridge.engine.transactions.pins import LockPin
from bridge.model import entity as model
from bridge.model.name import EntityPath, short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire import commits, envelope, forwarded
from bridge.wire.commits import (
    INQUIRY_BYTES,
    MESSAGE_BYTES,
    CommitContent,
    LockOutcome,
    TransferredEnvelope,
)
from bridge.wire.envelope import Item, Operation

HEAD_BYTES: Final = 128
"""At least the heads of the envelope, of its sections, and of the envelope of its sends."""

_TRANSFER_BYTES: Final = 2 + 4 + envelope.HEAD_BYTES + 2 + envelope.SOURCE_BYTES
_OUTCOME_BYTES: Final = MESSAGE_BYTES + INQUIRY_BYTES + 5
_CANCEL_BYTES: Final = 8
_PLACE = struct.Struct(">I")


def prepared(pinned: EntityPath, target: EntityPath, items: Sequence[Item]) -> PreparedSend:
    """Return checked messages as a part of a transaction."""
    size_bytes = sum(map(envelope.item_bytes, items))
    if not is_same(pinned, target):
        size_bytes += len(items) * (_TRANSFER_BYTES + len(target.entity.encode()))
    return PreparedSend(target, items, size_bytes)


def size_bytes(work: TransactionWork) -> int:
    """Return the size of a commit's envelope, at most some bytes more than it has."""
    outcomes = [outcome_of(each)[1] for _, each in work.settlements]
    return (
        HEAD_BYTES
        + sum(each.size_bytes for each in work.sends)
        + sum(_OUTCOME_BYTES + len(each) for each in outcomes)
        + len(work.cancels) * _CANCEL_BYTES
    )


def encode(work: TransactionWork, pinned: model.SendEntity) -> bytes:
    """Return the body of a commit's envelope.

    Args:
        pinned: the definition of the pinned entity.
    """
    own = [item for each in work.sends if is_same(work.pinned, each.target) for item in each.items]
    outcomes = [
        LockOutcome(pin.message, pin.inquiry, *outcome_of(disposition))
        for pin, disposition in work.settlements
        if isinstance(pin, LockPin)
    ]
    transfers = list(_transfers(work, pinned))
    content = CommitContent(own, transfers, outcomes, work.cancels)
    return commits.encode(work.identity, content)


def is_same(pinned: EntityPath, target: EntityPath) -> bool:
    """Whether messages for a target are sends of the pinned entity, and no transfers."""
    return pinned.entity.lower() == target.entity.lower()


def _transfers(work: TransactionWork, pinned: model.SendEntity) -> Iterator[TransferredEnvelope]:
    """Yield an envelope for each message for another entity: the same whenever it is encoded.

    The target drops a second copy by its source and its identity.
    """
    source = forwarded.source_of(short_id(incarnation_of(pinned)), is_dead_letter=False)
    place = 0
    for each in work.sends:
        if is_same(work.pinned, each.target):
            continue
        for item in each.items:
            identity = forwarded.identity_of(source, work.identity + _PLACE.pack(place))
            place += 1
            body = envelope.encode(Operation.SEND, identity, [replace(item, source=source)])
            yield TransferredEnvelope(each.target.entity, body)
