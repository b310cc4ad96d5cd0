"""The states of sessions that a way back brings from its target to its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import Final

from bridge.commands.errors import sentence_of
from bridge.commands.migration.peeking import SESSIONS_PAGE
from bridge.commands.migration.state_copying import target_states
from bridge.model.session_id import FoldedId, fold
from bridge.operations.migration.copy_effects import CopyRefused
from bridge.operations.migration.session_states import set_behind
from bridge.remote.errors import RemoteError
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.session_receiver import RemoteSessionReceiver

ACCEPT_S: Final = 20.0
"""How long a namespace may take to give a session."""

IN_MEMORY_BYTES: Final = 2_000_000
"""States of an entity that are kept in memory; with more all of it goes to a file without a name,
which ends with the process."""


class KeptStates:
    """States of sessions, some 300 bytes in memory for each."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile[bytes](max_size=IN_MEMORY_BYTES)
        self._places: dict[FoldedId, tuple[str, int, int]] = {}
        self._digests: dict[FoldedId, tuple[str, bytes | None]] = {}

    def keep(self, session_id: str, state: bytes | None) -> None:
        """Keep a state; `None` or an empty one: the session has none."""
        key, raw = fold(session_id), state or b""
        self._places[key] = session_id, self._file.seek(0, 2), len(raw)
        self._file.write(raw)
        self._digests[key] = session_id, sha256(raw).digest() if raw else None

    def has(self, session_id: str) -> bool:
        """Whether a session's state was read, though it had none."""
        return fold(session_id) in self._places

    @property
    def digests(self) -> Mapping[FoldedId, tuple[str, bytes | None]]:
        """Sessions as they are spelled, each with the SHA-256 of its state; `None`: it has none."""
        return self._digests

    def states(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield sessions with their states, one by one."""
        for session_id, at, size_bytes in self._places.values():
            self._file.seek(at)
            yield session_id, self._file.read(size_bytes) or None

    def close(self) -> None:
        """Forget them."""
        self._file.close()


class ReturnStates:
    """Reads the states of a target's sessions before their entity is held, and sets the source's.

    Args:
        run: the name of the run, which holds the target's entity.
    """

    def __init__(self, source: RemoteNamespace, target: RemoteNamespace, run: str) -> None:
        self._source, self._target, self._run = source, target, run
        self._kept: dict[str, KeptStates] = {}

    async def read(self, path: str) -> CopyRefused | None:
        """Read the states of an entity at the target; each session is locked meanwhile.

        Return which one somebody holds. Raises RemoteError.
        """
        self._forget(path)
        kept = self._kept[path] = KeptStates()
        for session_id in await sessions(self._target, path):
            session = await _accepted(self._target, path, session_id)
            if isinstance(session, RemoteError):
                return CopyRefused(f"session {session_id!r} at the target: {sentence_of(session)}")
            try:
                kept.keep(session_id, await session.state())
            finally:
                await session.close()
        return None

    async def check(self) -> CopyRefused | None:
        """Return which state was set between its reading and the hold. Raises RemoteError."""
        for path, kept in self._kept.items():
            held = await target_states(self._target, path, self._run)
            if (session_id := set_behind(kept.digests, held.digests)) is not None:
                return CopyRefused(
                    f"session {session_id!r} at the target: its state was set while the entity was "
                    "read: stop what receives there, and begin again."
                )
        return None

    async def bring(self, copied: Mapping[str, object]) -> CopyRefused | None:
        """Set the states at the source; a session that has none at the target gets none.

        At an entity that no run has copied the source's own states stay.

        Args:
            copied: what a run has copied, by the path in lower case.
        """
        for path, kept in self._kept.items():
            is_copied = path.lower() in copied
            for session_id, state in kept.states():
                if state is None and not is_copied:
                    continue
                refused = await self._set(path, session_id, state, is_copied=is_copied)
                if refused is not None:
                    return refused
            for session_id in await sessions(self._source, path) if is_copied else ():
                if not kept.has(session_id):
                    refused = await self._set(path, session_id, None, is_copied=True)
                    if refused is not None:
                        return refused
        return None

    async def _set(
        self, path: str, session_id: str, state: bytes | None, *, is_copied: bool
    ) -> CopyRefused | None:
        session = await _accepted(self._source, path, session_id)
        if isinstance(session, RemoteError):
            return CopyRefused(f"session {session_id!r} at the source: {sentence_of(session)}")
        try:
            own = await session.state() or None
            if own is not None and own != state and not is_copied:
                return CopyRefused(
                    f"session {session_id!r} has a state of its own at the source, where no run "
                    "has copied this entity: clear one of them (`busbridge session state clear`), "
                    "and begin again."
                )
            if own != state:
                await session.set_state(state)
        finally:
            with suppress(RemoteError):
                await session.close()
        return None

    def _forget(self, path: str) -> None:
        if (kept := self._kept.pop(path, None)) is not None:
            kept.close()

    def close(self) -> None:
        """Forget all states."""
        for path in list(self._kept):
            self._forget(path)


async def _accepted(
    namespace: RemoteNamespace, path: str, session_id: str
) -> RemoteSessionReceiver | RemoteError:
    try:
        return await namespace.session_receiver(path, session_id, max_wait_s=ACCEPT_S)
    except RemoteError as error:
        return error


async def sessions(namespace: RemoteNamespace, path: str) -> list[str]:
    """Return the sessions of an entity with messages or a state."""
    management = namespace.management_of(path)
    found: list[str] = []
    while page := await management.message_sessions(len(found), SESSIONS_PAGE):
        found += page
    return found
