"""Which messages belong to a session."""

from __future__ import annotations

from collections.abc import Callable

from bridge.model import entity as model
from bridge.model.session_id import fold
from bridge.topology.shards import session_key
from bridge.wire.basic import Table
from bridge.wire.sessions import session_id_in

IsMember = Callable[[Table], bool]
"""Returns whether a message with these headers belongs to a session."""


def members_of(entity: model.Entity, session_id: str) -> IsMember:
    """Return the test for the messages of an entity's session, whatever case their ids are in."""
    if isinstance(entity, model.Topic):
        folded = fold(session_id)
        return lambda table: (each := session_id_in(table)) is not None and fold(each) == folded
    queue, key = entity, session_key(entity, session_id)
    return lambda table: (
        (each := session_id_in(table)) is not None and session_key(queue, each) == key
    )
