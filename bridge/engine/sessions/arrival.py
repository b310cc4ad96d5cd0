"""A message that has come, as its session's."""

from __future__ import annotations

from bridge.engine.settlement.holding import Holding
from bridge.machine.sessions.place import Place
from bridge.wire import headers
from bridge.wire.basic import FieldValue, Table, python_value

PLACE_BYTES = 1_500
"""What a message takes here beside its body, for all that is known."""

NO_SESSION_REASON = "Session ID is null."
NO_SESSION_DESCRIPTION = (
    "Session enabled entity doesn't allow a message whose session identifier is null."
)

_NO_HEADERS: Table = {}
_ABSENT: FieldValue = ("V", None)


def place_of(holding: Holding) -> Place[Holding] | None:
    """Return a message's place, or `None` when it has no session."""
    table = holding.record.properties.headers or _NO_HEADERS
    session_id = python_value(table.get(headers.SESSION_ID, _ABSENT))
    if not isinstance(session_id, str):
        return None
    return Place(
        holding.number,
        holding.identity,
        holding.generation,
        holding.expires_ms,
        session_id,
        (holding.channel, holding.tag),
        holding,
        len(holding.record.body) + PLACE_BYTES,
    )
