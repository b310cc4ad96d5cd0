"""Sessions that transactions keep: time does not end their locks, and nobody else gets them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from bridge.machine.queue.locks import Locks
from bridge.machine.sessions.effects import Effect
from bridge.machine.sessions.index import Index
from bridge.machine.sessions.session import Holder, Session
from bridge.model.session_id import FoldedId

Message = TypeVar("Message")


class SessionPins(Generic[Message]):
    """The pinned sessions of a machine (`machine.sessions.sessions`).

    Args:
        locks: the locks of the sessions.
        on_ready: called with a session that nothing pins any more; returns the effects.
    """

    def __init__(
        self,
        index: Index[Message],
        locks: Locks[Session[Message]],
        on_ready: Callable[[Session[Message], int], list[Effect]],
    ) -> None:
        self._index = index
        self._locks = locks
        self._on_ready = on_ready

    def __repr__(self) -> str:
        return f"SessionPins({sum(1 for each in self._index.sessions.values() if each.pins)})"

    def pin(self, session_id: str, by: Hashable, *, now_ms: int) -> Holder | None:
        """Keep a session; return its receiver's hold, or `None` if nobody holds the session.

        Args:
            by: for what it is kept; that is to `unpin` it.
        """
        session = self._index.find(session_id)
        if session is None or self._locks.find(lock_of(session.id), now_ms=now_ms) is None:
            return None
        if not session.pins:
            self._locks.pin(lock_of(session.id), now_ms=now_ms)
        session.pins |= {by}
        return session.holder

    def keeps(self, session_id: str, by: Hashable, holder: Holder) -> bool:
        """Whether a receiver holds its pinned session still."""
        session = self._index.find(session_id)
        return session is not None and by in session.pins and session.holder is holder

    def unpin(self, session_id: str, by: Hashable, *, now_ms: int) -> list[Effect]:
        """Let a session go on: with the time that was left, or to the next receiver."""
        session = self._index.find(session_id)
        if session is None or by not in session.pins:
            return []
        session.pins -= {by}
        if session.pins:
            return []
        until_ms = self._locks.unpin(lock_of(session.id), now_ms=now_ms)
        if session.holder is not None and until_ms is not None:
            session.holder.until_ms = until_ms
        return self._on_ready(session, now_ms)

    def end(self, session: Session[Message], now_ms: int) -> None:
        """End a session's lock, pinned or not: its receiver has given it up."""
        if session.pins:
            self._locks.take_pinned(lock_of(session.id))
        else:
            self._locks.release(lock_of(session.id), now_ms=now_ms)


def lock_of(folded: FoldedId) -> bytes:
    """Return the name of a session's lock."""
    return folded.encode(errors="surrogatepass")
