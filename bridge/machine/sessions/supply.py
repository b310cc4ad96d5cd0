"""Sessions that can be given, and receivers that wait for one: each in its order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from bridge.machine.sessions.session import Session

Message = TypeVar("Message")


class Supply(Generic[Message]):
    """The session that has been available longest is the next one, for who has waited longest.

    Attributes:
        receivers: who waits.
    """

    def __init__(self) -> None:
        self.receivers: dict[Hashable, None] = {}
        self._sessions: OrderedDict[str, Session[Message]] = OrderedDict()

    def wait(self, receiver: Hashable) -> None:
        """A receiver wants the next session."""
        self.receivers[receiver] = None

    def give_up(self, receiver: Hashable) -> None:
        """A receiver waits no more."""
        self.receivers.pop(receiver, None)

    def offer(self, session: Session[Message], *, is_next: bool = False) -> None:
        """A session can be given: behind all others, or (`is_next`) before them."""
        self._sessions.setdefault(session.id, session)
        if is_next:
            self._sessions.move_to_end(session.id, last=False)

    def withdraw(self, session: Session[Message]) -> None:
        """A session cannot be given any more."""
        self._sessions.pop(session.id, None)

    def take(self) -> Session[Message] | None:
        """Take the next session off, when somebody waits for one."""
        if not self.receivers or not self._sessions:
            return None
        return self._sessions.popitem(last=False)[1]

    def take_receiver(self) -> Hashable:
        """Take off who has waited longest."""
        receiver = next(iter(self.receivers))
        del self.receivers[receiver]
        return receiver

    def clear(self) -> None:
        """Forget all."""
        self._sessions.clear()
        self.receivers.clear()
