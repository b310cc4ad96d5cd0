"""The lease of a migration at its target: no two of its commands work at once."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

from bridge.background.tasks import Tasks
from bridge.commands.clock import now_ms
from bridge.commands.errors import CommandError
from bridge.commands.output import Output, time_text
from bridge.model.properties import EntityKind
from bridge.operations.migration.run_mark import LEASE_PREFIX
from bridge.relay.running.session_lock import CANNOT_BE_LOCKED, SessionLock
from bridge.remote.entity import entity_node
from bridge.remote.errors import RemoteError, RemoteNotFound
from bridge.remote.session_receiver import RemoteSessionReceiver

if TYPE_CHECKING:
    from bridge.commands.migration.connection import ConnectedSides

SESSION: Final = "command"

LOCK_S: Final = 10

TAKE_S: Final = 15.0
"""For how long it is asked for while another has it: what a killed command had ends within its
lock's duration. A target that is silent is asked for as long as by any other call."""

AGAIN_S: Final = 0.5

METADATA_MAX: Final = 1_024
"""Characters of UserMetadata."""

_MADE_BEFORE: Final = "com.microsoft:entity-already-exists"


class MigrationLease:
    """The lock of a session of an own queue at the target, renewed while the command works.

    It ends with the command, however that ends, so it needs no one who cleans up behind a kill. One
    that is lost, as the target is started again, is taken anew as soon as the target answers; where
    another command has taken it meanwhile, this one stops.

    Whoever finds it taken is told by whom: its queue says so.

    Args:
        asked: is set when the command has to stop.
        verb: which command it is, such as "run".
    """

    def __init__(
        self, sides: ConnectedSides, output: Output, asked: asyncio.Event, verb: str
    ) -> None:
        self._sides = sides
        self._holder = f"`busbridge migrate {verb}` of {_user()} on {socket.gethostname()}"
        self._output = output
        self._asked = asked
        self._name = f"{LEASE_PREFIX}{sides.run.partition('-')[2]}"
        self._lock: SessionLock | None = None
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        """Take it.

        Raises:
            CommandError: another command has it.
            RemoteError: the target refuses, or does not answer.
        """
        await self._begin()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Give it back, with its queue."""
        self._tasks.cancel()
        with suppress(RemoteError):
            if self._lock is not None and self._lock.lease.is_held(now_ms()):
                await self._sides.at_target.delete(self._name)
        await self._end()

    async def check(self) -> None:
        """See that it is held, also behind a question that took long; raises as `__aenter__`."""
        if self._lock is None or not self._lock.lease.is_held(now_ms()):
            self._tasks.cancel()
            await self._end()
            await self._begin()

    async def _begin(self) -> None:
        # Renewed from here on: a target may take longer to say who has it than the lock lasts.
        self._lock = lock = SessionLock(await self._taken(), now_ms, lambda error: None)
        self._tasks.start(self._watch(lock), name="lease of a migration")
        with suppress(RemoteError):  # it is for people
            await self._say_who()

    async def _end(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(RemoteError):
                await lock.release()

    async def _taken(self) -> RemoteSessionReceiver:
        from bridge.commands.migration.connection import PATIENCE_S

        end_s = time.monotonic() + PATIENCE_S
        another_s: float | None = None
        while True:
            try:
                await self._make()
                return await self._sides.to_target.session_receiver(self._name, SESSION)
            except RemoteError as error:
                is_another = error.condition == CANNOT_BE_LOCKED
                is_gone = isinstance(error, RemoteNotFound)  # another one has ended meanwhile
                now_s = time.monotonic()
                if not (is_another or is_gone or error.retryable):
                    raise
                if not is_another:
                    another_s = None
                    if now_s > end_s:
                        raise
                elif now_s - (another_s := another_s or now_s) > TAKE_S:
                    raise CommandError(
                        f"{await self._who()} is at work between these namespaces. Wait until it "
                        "has ended, or end it, and give this command again: it has changed nothing "
                        f"more. A command that was killed stands in the way for {LOCK_S} s at most."
                    ) from None
            await asyncio.sleep(AGAIN_S)

    async def _say_who(self) -> None:
        found = await self._sides.at_target.get("Queue", self._name)
        since = time_text(datetime.now(UTC))
        text = f"{self._holder}, process {os.getpid()}, since {since}"
        changed = found.changed({"UserMetadata": text[:METADATA_MAX]})
        await self._sides.at_target.update("Queue", changed, self._name)

    async def _who(self) -> str:
        """Return who has it, as a sentence begins."""
        with suppress(RemoteError):
            found = await self._sides.at_target.get("Queue", self._name)
            if text := found.description.text_of("UserMetadata"):
                return text
        return "Another command of this migration"

    async def _make(self) -> None:
        node = entity_node(
            EntityKind.QUEUE, {"LockDuration": f"PT{LOCK_S}S", "RequiresSession": "true"}
        )
        try:
            await self._sides.at_target.create("Queue", node, self._name)
        except RemoteError as error:
            if error.condition != _MADE_BEFORE:
                raise

    async def _watch(self, lock: SessionLock) -> None:
        """Take it anew when it is lost; stop the command when that fails."""
        await lock.lost()
        with suppress(RemoteError):
            await lock.release()
        try:
            await self._begin()
        except (CommandError, RemoteError) as error:
            self._lock = None
            self._output.say(str(error))
            self._asked.set()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user has no name
        return f"user {os.getuid()}"
