"""The states of sessions, moved from one namespace to another."""

from __future__ import annotations

from collections.abc import Callable

from bridge.relay.running.errors import StateRefused
from bridge.relay.running.outlet import OF_THE_ENTITY
from bridge.relay.running.session_lock import accepted
from bridge.remote.errors import RemoteRefused
from bridge.remote.management import RemoteManagement
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.session_receiver import RemoteSessionReceiver

PAGE = 100
"""Sessions of one request."""


async def stated_sessions(management: RemoteManagement, since_ms: int) -> list[str]:
    """Return the sessions whose state was set since a time (Listen); some may have none any more.

    Raises:
        RemoteError: the namespace refuses, or does not answer.
    """
    found: list[str] = []
    while page := await management.message_sessions(len(found), PAGE, since_ms):
        found += page
    return found


async def move_state(
    source: RemoteSessionReceiver,
    target: RemoteNamespace,
    entity: str,
    on_locked: Callable[[], None],
) -> bool:
    """Set a session's state at the target, before its messages, and remove it at the source.

    A state that the target's session has already is newer, and stays. A session that a receiver of
    the target has locked is waited for: nobody else may set its state.

    Args:
        source: the session, accepted.
        entity: the target's.
        on_locked: called each time that another has the target's session.

    Returns:
        True, when the session has no state at the source any more.

    Raises:
        StateRefused: the target refuses this state for good.
        RemoteLockLost: one of the two sessions is not locked any more.
        RemoteError: a side refuses it, or is not reached.
    """
    state = await source.state()
    if state is None:
        return True
    there = await accepted(target, entity, source.session_id, on_locked)
    try:
        if await there.state() is None:
            await _set(there, entity, state)
    finally:
        await there.close()
    await source.set_state(None)
    return True


async def _set(session: RemoteSessionReceiver, entity: str, state: bytes) -> None:
    try:
        await session.set_state(state)
    except RemoteRefused as error:
        if error.retryable or error.in_doubt or error.condition in OF_THE_ENTITY:
            raise
        text = f"{entity} refuses the state of the session {session.session_id!r}: {error}"
        raise StateRefused(text) from error
