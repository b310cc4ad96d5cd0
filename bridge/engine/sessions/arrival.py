"""A delivered message as an element of its session."""

from __future__ import annotations

from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.sessions.entry import SessionEntry
from bridge.wire.basic import Table
from bridge.wire.sessions import session_id_in

PLACE_BYTES = 1_500
"""An estimate of the memory that a message takes beside its body."""

NO_SESSION_REASON = "Session ID is null."
NO_SESSION_DESCRIPTION = (
    "Session enabled entity doesn't allow a message whose session identifier is null."
)

_NO_HEADERS: Table = {}


def place_of(holding: HeldMessage) -> SessionEntry[HeldMessage] | None:
    """Return a message's place in its session, or `None` when it has no session id."""
    session_id = session_id_in(holding.record.properties.headers or _NO_HEADERS)
    if session_id is None:
        return None
    return SessionEntry(
        holding.number,
        holding.identity,
        holding.generation,
        holding.expires_ms,
        session_id,
        (holding.channel, holding.tag),
        holding,
        len(holding.record.body) + PLACE_BYTES,
        holding.deaths,
    )
