"""Who waits for an answer about a session, otherwise than a caller: `core.wire.Answer`."""

from __future__ import annotations

from bridge.client.core.held_session import LOCK_LOST, HeldSession
from bridge.client.core.wire import Answer
from bridge.client.exceptions import MessageLockLostError, SessionLockLostError


class Nobody:
    """Nobody waits."""

    def done(self) -> bool:
        """Whether somebody waits no more."""
        return True

    def set_result(self, result: object) -> None:
        """Nobody hears it."""

    def set_exception(self, error: BaseException) -> None:
        """Nobody hears it."""


class Loses(Nobody):
    """A question without which the session's messages do not come."""

    def __init__(self, held: HeldSession) -> None:
        self._held = held

    def done(self) -> bool:
        """It is heard until the session is lost."""
        return self._held.lost is not None

    def set_exception(self, error: BaseException) -> None:
        """The session is lost."""
        self._held.lose(str(error))


class OfSession:
    """Has its waiter hear that the session is lost, where a message's lock is."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def done(self) -> bool:
        """Whether it has a result, or was given up."""
        return self._answer.done()

    def set_result(self, result: object) -> None:
        """Have its waiter go on."""
        self._answer.set_result(result)

    def set_exception(self, error: BaseException) -> None:
        """Have its waiter fail."""
        is_lost = isinstance(error, MessageLockLostError)
        self._answer.set_exception(SessionLockLostError(LOCK_LOST) if is_lost else error)
