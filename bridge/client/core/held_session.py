"""A session that a client holds: credit, messages, and why the lock ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Protocol

from bridge.client.core.pull import Begun, Pull
from bridge.client.core.wire import CallerFuture, Wire
from bridge.client.exceptions import SessionLockLostError
from bridge.message.received import Received

LOCK_LOST = "The session lock has expired on the MessageSession. Accept a new MessageSession."


class MessageRequests(Protocol):
    """Requests to the bridge for the session's messages."""

    def credit(self, held: HeldSession, count: int) -> None:
        """Ask for `count` more messages."""

    def drain(self, held: HeldSession, done: Callable[[], None]) -> None:
        """Take back all credit; `done` is called after the last message."""

    def taken(self, held: HeldSession) -> None:
        """Tell the bridge that the application has the received-and-deleted messages."""


class HeldSession:
    """A session's lock, and its messages in this client.

    Args:
        number: the receiver's name at the bridge that holds the session.
        bridge: that bridge's queue.
        deletes: messages are settled when the application has them, and the bridge is told so.

    Attributes:
        path: the entity's.
        session_id: the session.
        until_ms: the lock's end (UTC ms).
        lost: why the lock has ended; `None` while it has not.
        arrived: how many messages have come.
        taken: how many messages the application has, if they are received and deleted.
    """

    def __init__(
        self,
        number: int,
        bridge: str,
        path: str,
        session_id: str,
        until_ms: int,
        *,
        deletes: bool,
        wire: Wire,
        asked: MessageRequests,
    ) -> None:
        self.number = number
        self.bridge = bridge
        self.path = path
        self.session_id = session_id
        self.until_ms = until_ms
        self.lost: str | None = None
        self.arrived = 0
        self.taken = 0
        self._deletes = deletes
        self._wire = wire
        self._asked = asked
        self._pulls: list[Pull[None]] = []
        self._buffer: deque[Received] = deque()
        self._credit = 0
        self._is_draining = False
        self._ending = 0
        self._when_ended: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"HeldSession({self.path}, {self.session_id!r}, {self.lost!r})"

    def check(self) -> None:
        """Raise SessionLockLostError when the lock has ended."""
        if self.lost is None and self._wire.now_ms() >= self.until_ms:
            self.lose(LOCK_LOST)
        if self.lost is not None:
            raise SessionLockLostError(self.lost)

    def pull(
        self,
        count: int,
        wait_s: float | None,
        answer: CallerFuture,
        begun: Callable[[Begun], None],
    ) -> None:
        """Receive up to `count` messages; answer with a list of `Received`.

        Args:
            begun: called before the answer; see `Namespace.pull`.
        """
        self.check()
        pull: Pull[None] = Pull(count, answer)
        self._pulls.append(pull)
        if wait_s is not None:
            pull.end_in(self._wire, wait_s, partial(self._withdraw, pull))
        begun(
            Begun(
                partial(self._withdraw, pull),
                partial(self._taken, pull) if self._deletes else None,
                partial(self._put_back, pull),
            )
        )
        self._fill()
        self._ask()

    def on_message(self, received: Received) -> None:
        """Buffer a message, and fill the pulls."""
        self.arrived += 1
        self._credit = max(self._credit - 1, 0)
        self._buffer.append(received)
        self._fill()

    def locks_end(self) -> None:
        """Note that a bridge is being told of the end of deferred messages' locks."""
        self._ending += 1

    def locks_ended(self) -> None:
        """Note that the bridge has been told of one such end."""
        self._ending -= 1
        if not self._ending and self._when_ended is not None:
            then, self._when_ended = self._when_ended, None
            then()

    def when_locks_ended(self, then: Callable[[], None]) -> None:
        """Call `then` when bridges have heard of the ends of deferred messages' locks.

        The session's end would release what is to be completed.
        """
        if self._ending:
            self._when_ended = then
        else:
            then()

    def lose(self, why: str) -> None:
        """End the lock, and fail the pulls."""
        if self.lost is None:
            self.lost = why
            self._buffer.clear()
            pulls, self._pulls = self._pulls, []
            for pull in pulls:
                pull.fail(SessionLockLostError(why))

    def _fill(self) -> None:
        for pull in self._pulls[:]:
            while self._buffer and not pull.is_full:
                pull.got.append((None, self._buffer.popleft()))
                if len(pull.got) == 1 and not pull.is_full:
                    pull.end_soon(self._wire, partial(self._withdraw, pull))
            if pull.is_full:
                self._finish(pull)

    def _finish(self, pull: Pull[None]) -> None:
        self._pulls.remove(pull)
        if not pull.finish():
            self._buffer.extendleft(received for _, received in reversed(pull.got))

    def _taken(self, pull: Pull[None]) -> None:
        """Tell the bridge that the caller has received-and-deleted messages."""
        if pull.hear() and pull.got and self.lost is None:
            self.taken += len(pull.got)
            self._asked.taken(self)

    def _put_back(self, pull: Pull[None]) -> None:
        """Give the next calls, in order, what an interrupted caller did not take."""
        if pull.hear() and self.lost is None:
            found = [*self._buffer]
            for each in (pull, *self._pulls):
                found += [received for _, received in each.got]
                each.got.clear()
            self._buffer = deque(sorted(found, key=attrgetter("sequence_number")))
            self._fill()

    def _withdraw(self, pull: Pull[None]) -> None:
        """End a pull with the messages that have come, or are in flight."""
        if pull not in self._pulls or pull.is_withdrawn:
            return
        pull.is_withdrawn = True
        if not self._credit and not self._is_draining:
            self._finish(pull)
        elif not self._is_draining:
            self._is_draining = True
            self._asked.drain(self, self._on_drained)

    def _on_drained(self) -> None:
        self._is_draining = False
        self._credit = 0
        for pull in self._pulls[:]:
            if pull.is_withdrawn:
                self._finish(pull)
        self._fill()
        self._ask()

    def _ask(self) -> None:
        """Ask for as many messages as the pulls lack; not while credit is taken back."""
        lacks = sum(pull.lacks for pull in self._pulls if not pull.is_withdrawn)
        count = lacks - self._credit - len(self._buffer)
        if count > 0 and not self._is_draining and self.lost is None:
            self._credit += count
            self._asked.credit(self, count)
