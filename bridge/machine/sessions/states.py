"""The states of an entity's sessions as a pure machine: the newest state of each session counts.

RabbitMQ keeps a message for each state. A new state is published before the earlier one is acked,
so a kill in between leaves both; the later state has the higher time. So it is with the states that
a version before folded ids has stored for two spellings of one id.

A session without a state may have a bare one: a message that says so, with a time. A transaction
that gives the session a state needs it: who is to set that once more, because nobody knows whether
it was set, finds the bare one, or a later state, or none, as the state was cleared since.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.model.session_id import FoldedId, fold


@dataclass(frozen=True, slots=True)
class _State:
    spelling: str
    updated_ms: int
    value: bytes | None
    tag: int


class States:
    """The newest state of each session that RabbitMQ has brought; ids may come in any case."""

    def __init__(self) -> None:
        self._states: dict[FoldedId, _State] = {}
        self._least_ms = 0

    def __len__(self) -> int:
        return len(self._states)

    def __repr__(self) -> str:
        return f"States({len(self)})"

    def value_of(self, session_id: str) -> bytes | None:
        """Return a session's state, or `None`."""
        state = self._states.get(fold(session_id))
        return None if state is None else state.value

    def ids(self, updated_after_ms: int | None = None) -> list[str]:
        """Return the sessions that have a state, or only those with a state set later.

        Each id is spelt as when the state was set.
        """
        return [
            each.spelling
            for each in self._states.values()
            if each.value is not None
            and (updated_after_ms is None or each.updated_ms > updated_after_ms)
        ]

    def next_ms(self, session_id: str, now_ms: int) -> int:
        """Return the time of a session's next state: above that of the present one."""
        state = self._states.get(fold(session_id))
        least_ms = max(now_ms, self._least_ms)
        return least_ms if state is None else max(least_ms, state.updated_ms + 1)

    def note_followed(self, below_ms: int) -> None:
        """Give no time below this one any more, whatever the clock says.

        A transaction's state is of this time or later. It may have been cleared, and its owner be
        asked to set it once more: a bare state of an earlier time would let it.
        """
        self._least_ms = max(self._least_ms, below_ms)

    def has_any(self, session_id: str) -> bool:
        """Whether a session has a state, perhaps a bare one."""
        return fold(session_id) in self._states

    def is_due(self, session_id: str, below_ms: int) -> bool:
        """Whether a state that a transaction gives a session is not set yet.

        Args:
            below_ms: the times of states that it follows: the time that `next_ms` gave when the
                session had a state, perhaps a bare one.
        """
        state = self._states.get(fold(session_id))
        return state is not None and state.updated_ms < below_ms

    @property
    def bare(self) -> list[str]:
        """The sessions with a bare state."""
        return [each.spelling for each in self._states.values() if each.value is None]

    def arrived(
        self, session_id: str, updated_ms: int, value: bytes | None, tag: int
    ) -> int | None:
        """Take a state from RabbitMQ; return the tag of the outdated state, to be acked.

        Args:
            value: `None`: it is a bare one.
        """
        folded = fold(session_id)
        known = self._states.get(folded)
        if known is not None and updated_ms < known.updated_ms:
            return tag
        self._states[folded] = _State(session_id, updated_ms, value, tag)
        return None if known is None else known.tag

    def clear(self, session_id: str) -> int | None:
        """Forget a session's state; return its tag, to be acked."""
        known = self._states.pop(fold(session_id), None)
        return None if known is None else known.tag

    def strip(self, session_id: str) -> int | None:
        """Forget a session's bare state; return its tag, to be acked."""
        known = self._states.get(fold(session_id))
        return None if known is None or known.value is not None else self.clear(session_id)

    def lose(self) -> None:
        """Forget all states: RabbitMQ has taken them back."""
        self._states.clear()
