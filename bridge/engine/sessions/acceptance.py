"""One accept of a session: a *candidate* receiver for each shard, of which the first wins.

A named session is in one shard. The next session is asked for in all shards. First come the shards
that this process owns, one after the other, since they answer at once. When none of them gives a
session, all shards are asked together. Other grants are given back unused. Every `TURN`th accept
asks the shards of other bridges `LEAD_S` earlier. Otherwise their sessions would wait as long as
this process's shards have sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.sessions.events import SessionGiven, SessionRefused
from bridge.engine.sessions.location import Location
from bridge.engine.sessions.receiver import SessionReceiver
from bridge.model.errors import OperationTimeout, ServerBusy, SessionCannotBeLocked

AGAIN_S = 0.1

TURN = 8
LEAD_S = 0.05

Find = Callable[[SessionReceiver], Awaitable[Location]]


class Acceptance:
    """Waits until one of several candidates has a session.

    Args:
        session_id: the session's id, or `None` for the next session.
        find: returns the location of the owner of a candidate's shard.
        owned: returns the location when this process owns the candidate's shard, else `None`.
        moved: called with a candidate when its shard's owner has changed.
    """

    def __init__(
        self,
        candidates: Sequence[SessionReceiver],
        session_id: str | None,
        *,
        find: Find,
        owned: Callable[[SessionReceiver], Location | None],
        moved: Callable[[SessionReceiver], None],
    ) -> None:
        self._candidates = candidates
        self._session_id = session_id
        self._find = find
        self._owned = owned
        self._moved = moved
        self._busy: dict[SessionReceiver, ServerBusy] = {}

    async def wait(self, *, lead_elsewhere: bool) -> SessionReceiver:
        """Return the candidate that has a session; all other candidates give up.

        Args:
            lead_elsewhere: shards that other bridges own are asked first.

        Raises:
            ServiceBusError: another receiver holds the session, or no owner gives one now.
        """
        try:
            return await self._first(lead_elsewhere)
        finally:
            for each in self._candidates:
                if not each.is_accepted:
                    each.give_up()

    async def _first(self, lead_elsewhere: bool) -> SessionReceiver:
        here = [each for each in self._candidates if self._owned(each) is not None]
        elsewhere = [each for each in self._candidates if each not in here]
        tasks: dict[asyncio.Task[None], SessionReceiver] = {}
        try:
            if lead_elsewhere and elsewhere:
                tasks |= {self._start(each): each for each in elsewhere}
                await asyncio.wait(tasks, timeout=LEAD_S, return_when=asyncio.FIRST_COMPLETED)
                found = self._found(tasks)
                if found is not None:
                    return found
            for each in here:
                if self._asked_here(each):
                    return each
            started = set(tasks.values())
            tasks |= {self._start(each): each for each in self._candidates if each not in started}
            while True:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                found = self._found(tasks)
                if found is not None:
                    return found
        finally:
            for task in tasks:
                if not task.cancel() and not task.cancelled():
                    task.exception()  # another candidate has decided the result

    def _start(self, candidate: SessionReceiver) -> asyncio.Task[None]:
        work = self._given_in_the_end(candidate)
        return asyncio.get_running_loop().create_task(work, name="session candidate")

    def _asked_here(self, candidate: SessionReceiver) -> bool:
        """Ask an owner in this process; return whether it has given a session at once."""
        at = self._owned(candidate)
        if at is None:
            return False
        candidate.ask(at, self._session_id)
        return candidate.accepted()

    def _found(self, tasks: dict[asyncio.Task[None], SessionReceiver]) -> SessionReceiver | None:
        """Return a candidate that has a session; one that has lost it meanwhile asks again.

        Raises:
            ServiceBusError: the error of a finished candidate.
        """
        for task in [each for each in tasks if each.done()]:
            candidate = tasks.pop(task)
            task.result()
            if candidate.accepted():
                return candidate
            tasks[self._start(candidate)] = candidate
        return None

    async def _given_in_the_end(self, candidate: SessionReceiver) -> None:
        """Ask for a session until one is given; try again while the shard is busy.

        Raises:
            SessionCannotBeLocked: another receiver holds the session.
            ServerBusy: the shards of all candidates are busy.
        """
        while True:
            try:
                await self._given(candidate)
            except ServerBusy as error:
                self._busy[candidate] = error
                if len(self._busy) == len(self._candidates):
                    raise
                await asyncio.sleep(10 * AGAIN_S)
            else:
                return

    async def _given(self, candidate: SessionReceiver) -> None:
        """Ask for a session until one is given; ask again when the shard's owner changes.

        Raises:
            SessionCannotBeLocked: another receiver holds the session.
            ServerBusy: the shard's owner cannot be asked now.
        """
        while True:
            if not candidate.is_asked:
                try:
                    at = await self._find(candidate)
                except OperationTimeout:  # a takeover may last: only the receiver's timeout ends it
                    await asyncio.sleep(AGAIN_S)
                    continue
                except BrokerError as error:
                    raise ServerBusy(texts.busy(error)) from error
                self._busy.pop(candidate, None)
                candidate.ask(at, self._session_id)
            match await candidate.answer():
                case SessionGiven():
                    return
                case SessionRefused():
                    raise SessionCannotBeLocked(
                        texts.session_cannot_be_locked(self._session_id or "")
                    )
            self._moved(candidate)
            await asyncio.sleep(AGAIN_S)
