"""The states of an entity's sessions as a pure machine: of each session the newest counts.

RabbitMQ keeps a message for each. A change is published before the earlier one is acked, so a kill
in between leaves both; what was changed last has the higher time.
"""

from __future__ import annotations


class _State:
    __slots__ = ("tag", "updated_ms", "value")

    def __init__(self, updated_ms: int, value: bytes | None, tag: int | None) -> None:
        self.updated_ms = updated_ms
        self.value = value
        self.tag = tag


class States:
    """What was stored with each session, or is being stored."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def __len__(self) -> int:
        """Return how many there are, cleared ones that are to come included."""
        return len(self._states)

    def __repr__(self) -> str:
        return f"States({len(self)})"

    def get(self, session_id: str) -> bytes | None:
        """Return a session's state, or `None`."""
        state = self._states.get(session_id)
        return None if state is None else state.value

    def updated_ms(self, session_id: str) -> int | None:
        """Return when a session's state was set, or `None` when it has none."""
        state = self._states.get(session_id)
        return None if state is None or state.value is None else state.updated_ms

    @property
    def ids(self) -> list[str]:
        """The sessions that have a state."""
        return [each for each, state in self._states.items() if state.value is not None]

    def next_ms(self, session_id: str, now_ms: int) -> int:
        """Return the time of the next change: above that of the one before."""
        state = self._states.get(session_id)
        return now_ms if state is None else max(now_ms, state.updated_ms + 1)

    def arrived(self, session_id: str, updated_ms: int, value: bytes, tag: int) -> int | None:
        """RabbitMQ has brought a state; return the tag of one that is to be acked."""
        known = self._states.get(session_id)
        if known is None or updated_ms > known.updated_ms:
            self._states[session_id] = _State(updated_ms, value, tag)
            return None if known is None else known.tag
        if updated_ms < known.updated_ms:
            return tag
        if known.value is None:
            del self._states[session_id]
            return tag
        earlier, known.tag = known.tag, tag
        return earlier

    def stored(self, session_id: str, updated_ms: int, value: bytes) -> int | None:
        """RabbitMQ has confirmed a state that it will bring; return the tag to be acked."""
        known = self._states.get(session_id)
        if known is not None and known.updated_ms >= updated_ms:
            return None
        self._states[session_id] = _State(updated_ms, value, None)
        return None if known is None else known.tag

    def clear(self, session_id: str) -> int | None:
        """A session's state is to be forgotten; return the tag to be acked."""
        known = self._states.get(session_id)
        if known is None:
            return None
        if known.tag is None:
            known.value = None
        else:
            del self._states[session_id]
        return known.tag

    def lose(self) -> None:
        """RabbitMQ has taken everything back."""
        self._states.clear()
