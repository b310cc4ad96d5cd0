"""The states of an entity's sessions as a pure machine: of each session the newest counts.

RabbitMQ keeps a message for each. A change is published before the earlier one is acked, so a kill
in between leaves both; what was changed last has the higher time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _State:
    updated_ms: int
    value: bytes
    tag: int


class States:
    """What RabbitMQ has brought of each session."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __repr__(self) -> str:
        return f"States({len(self)})"

    def get(self, session_id: str) -> bytes | None:
        """Return a session's state, or `None`."""
        state = self._states.get(session_id)
        return None if state is None else state.value

    def ids(self, updated_after_ms: int | None = None) -> list[str]:
        """Return the sessions that have a state, all or those whose state was set later."""
        return [
            each
            for each, state in self._states.items()
            if updated_after_ms is None or state.updated_ms > updated_after_ms
        ]

    def next_ms(self, session_id: str, now_ms: int) -> int:
        """Return the time of the next change: above that of the one before."""
        state = self._states.get(session_id)
        return now_ms if state is None else max(now_ms, state.updated_ms + 1)

    def arrived(self, session_id: str, updated_ms: int, value: bytes, tag: int) -> int | None:
        """RabbitMQ has brought a state; return the tag of one that is to be acked."""
        known = self._states.get(session_id)
        if known is not None and updated_ms < known.updated_ms:
            return tag
        self._states[session_id] = _State(updated_ms, value, tag)
        return None if known is None else known.tag

    def clear(self, session_id: str) -> int | None:
        """A session's state is to be forgotten; return the tag to be acked."""
        known = self._states.pop(session_id, None)
        return None if known is None else known.tag

    def lose(self) -> None:
        """RabbitMQ has taken everything back."""
        self._states.clear()
