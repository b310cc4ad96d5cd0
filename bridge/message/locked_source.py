"""What an entity's leader calls the queue of a locked message, in transactions."""

from __future__ import annotations

from bridge.message.departure import MoveSource
from bridge.model.entity import ReceiveEntity
from bridge.model.name import short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire.commits import LockedIn, source_in


def source_of(place: MoveSource) -> bytes:
    """Return the source of the messages of a place (`wire.commits.LockedMessage`)."""
    if place.is_deferred:
        where = LockedIn.DEFERRED
    else:
        where = LockedIn.DEAD_LETTER if place.is_dead_letter else LockedIn.ACTIVE
    return source_in(short_id(incarnation_of(place.queue)), where)


def source_of_states(queue: ReceiveEntity) -> bytes:
    """Return the source of the states of a queue's or subscription's sessions."""
    return source_in(short_id(incarnation_of(queue)), LockedIn.STATES)
