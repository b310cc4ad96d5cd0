"""Reads the states of a source's sessions, and stores them at a target that a migration holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from bridge.commands.errors import sentence_of
from bridge.operations.migration.copy_effects import (
    CopyDone,
    CopyRefused,
    SourceStates,
    TargetStates,
)
from bridge.relay.running.session_lock import CANNOT_BE_LOCKED
from bridge.remote.errors import RemoteError, RemoteLockLost
from bridge.remote.namespace import RemoteNamespace

ACCEPT_S = 20.0
"""How long a namespace may take to give a session."""

LOST_S = 300.0
"""How long a session is accepted again whose lock or connection was lost; Azure's locks last 300 s
at most."""

AGAIN_S = 1.0

PAGE = 5_000
"""Sessions of a page of digests."""


async def state_of(namespace: RemoteNamespace, path: str, session_id: str) -> bytes | None:
    """Return the state of a session, which is locked meanwhile; an empty one is none.

    Raises:
        RemoteError: somebody holds the session, or the namespace refuses or does not answer.
    """
    receiver = await namespace.session_receiver(path, session_id, max_wait_s=ACCEPT_S)
    try:
        return await receiver.state() or None
    finally:
        with suppress(RemoteError):
            await receiver.close()


async def _state_at_last(namespace: RemoteNamespace, path: str, session_id: str) -> bytes | None:
    """Return the state of a session; one whose lock ends meanwhile is accepted again.

    After that the namespace may count the session as held by the connection that was lost.
    """
    loop = asyncio.get_running_loop()
    end_s, was_lost = loop.time() + LOST_S, False
    while True:
        try:
            return await state_of(namespace, path, session_id)
        except RemoteError as error:
            is_locked = error.condition == CANNOT_BE_LOCKED
            is_lost = error.retryable or isinstance(error, RemoteLockLost)
            if not (was_lost if is_locked else is_lost) or loop.time() >= end_s:
                raise
            was_lost = True
        await asyncio.sleep(AGAIN_S)


async def source_states(
    source: RemoteNamespace, path: str, session_ids: Sequence[str]
) -> SourceStates | CopyRefused:
    """Return the states of sessions, or which of them somebody holds.

    Raises:
        RemoteError: the namespace refuses for another reason, or does not answer.
    """
    reads = (_state_at_last(source, path, each) for each in session_ids)
    found = await asyncio.gather(*reads, return_exceptions=True)
    states = []
    for session_id, state in zip(session_ids, found, strict=True):
        if isinstance(state, RemoteError) and state.condition == CANNOT_BE_LOCKED:
            return CopyRefused(f"session {session_id!r}: {sentence_of(state)}")
        if isinstance(state, BaseException):
            raise state
        if state is not None:
            states.append((session_id, state))
    return SourceStates(tuple(states))


async def target_states(target: RemoteNamespace, path: str, run: str) -> TargetStates:
    """Return the digests of all states that a held entity has; raises RemoteError."""
    management = target.management_of(path)
    found: dict[str, bytes] = {}
    while page := await management.session_state_digests(run, len(found), PAGE):
        found |= page
    return TargetStates(found)


async def store_states(
    target: RemoteNamespace, path: str, run: str, states: Sequence[tuple[str, bytes]]
) -> CopyDone | CopyRefused:
    """Store states at a held entity; those that are there already are stored again.

    Raises:
        RemoteError: the target is busy, or does not answer; they may be stored.
    """
    management = target.management_of(path)
    stores = (management.import_session_state(run, *each) for each in states)
    for (session_id, _), error in zip(
        states, await asyncio.gather(*stores, return_exceptions=True), strict=True
    ):
        if isinstance(error, RemoteError) and not error.retryable and not error.in_doubt:
            return CopyRefused(f"the state of session {session_id!r}: {sentence_of(error)}")
        if isinstance(error, BaseException):
            raise error
    return CopyDone()
