"""The bounds of a session's id and of its state, for receivers and for migrations."""

from __future__ import annotations

from bridge.engine import texts
from bridge.model.errors import ArgumentOutOfRange, MessageSizeExceeded
from bridge.topology.parts import SESSION_STATE_BYTES_MAX
from bridge.wire.mapping.inward import KEY_CHARACTERS_MAX


def check_session_id(session_id: str) -> None:
    """Raise ArgumentOutOfRange for a session id that is too long."""
    if len(session_id) > KEY_CHARACTERS_MAX:
        raise ArgumentOutOfRange(
            f"The session id has {len(session_id)} characters; Service Bus takes "
            f"{KEY_CHARACTERS_MAX} at most."
        )


def check_state(path: str, state: bytes | None) -> None:
    """Raise MessageSizeExceeded for a state that is too large."""
    if state is not None and len(state) > SESSION_STATE_BYTES_MAX:
        text = texts.state_too_large(path, len(state), SESSION_STATE_BYTES_MAX)
        raise MessageSizeExceeded(text)
