"""`$management` operations on sessions, for the connection that holds the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.engine import texts as engine_texts
from bridge.engine.api import NamespaceVerbs
from bridge.gateway.client.client import Client
from bridge.model.availability import check_run
from bridge.model.errors import (
    ArgumentError,
    NotAllowed,
    SessionLockLost,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.topology.shards import session_key
from bridge.wire.amqp10.types import Array, Int, Timestamp

SESSION_ID: Final = "session-id"

LISTED_MAX = 5_000
"""Sessions of one page: more than any SDK asks for at a time."""

ALL_MS = 253_402_300_799_999
"""`last-updated-time` from here on, the last millisecond of the year 9999, asks for all sessions
that have messages or a state. Clients send one millisecond more, .NET's rounding."""

Body = dict[str, Any]


def check_entity(namespace: NamespaceVerbs, path: EntityPath) -> None:
    """Check that an entity has sessions.

    Raises:
        EntityNotFound: no entity has this name.
        NotAllowed: the entity has no sessions, as a dead-letter queue has none.
    """
    if not requires_session(namespace, path):
        raise NotAllowed(engine_texts.SESSION_ON_PLAIN_ENTITY)


def requires_session(namespace: NamespaceVerbs, path: EntityPath) -> bool:
    """Whether messages are received from an entity in sessions."""
    if path.sub_queue is not SubQueue.NONE:
        return False
    return namespace.receive_entity(path).requires_session


def session_id_of(body: Mapping[str, Any]) -> str | None:
    """Return the session id of a request.

    Raises:
        ArgumentError: the session id is no text.
    """
    session_id = body.get(SESSION_ID)
    if session_id is not None and not isinstance(session_id, str):
        raise ArgumentError(f"'{SESSION_ID}' must be a string.")
    return session_id


def of_holder(client: Client, path: EntityPath, body: Body, link_name: Any) -> Body:
    """Check that the connection holds a request's session; return the request with the session id.

    The request names the session, or the session's link (the Go client, for deferred messages). For
    an entity without sessions neither matters.

    Args:
        link_name: `associated-link-name` of the request.

    Raises:
        SessionLockLost: the connection does not hold the session, or not any more.
    """
    namespace = client.namespace
    if not requires_session(namespace, path):
        return body
    session_id = session_id_of(body)
    if session_id is None:
        session_id = next(
            (
                held.session_id
                for (key, _), held in client.sessions.items()
                if key == path.key and held.link.name == link_name
            ),
            None,
        )
        return body if session_id is None else {**body, SESSION_ID: session_id}
    key = session_key(namespace.receive_entity(path), session_id)
    if (path.key, key) not in client.sessions:
        raise SessionLockLost(engine_texts.SESSION_LOCK_LOST)
    return body


def named_session(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> str:
    """Return the session id of a request, which must have one.

    Raises:
        EntityNotFound, NotAllowed, ArgumentError: the entity, or the request, has none.
    """
    check_entity(namespace, path)
    session_id = session_id_of(body)
    if session_id is None:
        raise ArgumentError(f"'{SESSION_ID}' is missing.")
    return session_id


async def renew_session_lock(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    """Renew a session's lock: its full duration begins now."""
    end_ms = await namespace.renew_session_lock(path, named_session(namespace, path, body))
    return {"expiration": Timestamp(end_ms)}


async def get_session_state(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    """Return the state of a session."""
    state = await namespace.session_state(path, named_session(namespace, path, body))
    return {"session-state": state}


async def set_session_state(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    """Set the state of a session; null or an empty binary clears the state.

    The Go client sends nil as no bytes, and expects nil back.
    """
    await namespace.set_session_state(path, *state_in(namespace, path, body))
    return {}


def state_in(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> tuple[str, bytes | None]:
    """Return the session and its new state in a request; raises as `named_session`."""
    return named_session(namespace, path, body), _state_of(body)


def _state_of(body: Body) -> bytes | None:
    state = body.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise ArgumentError("'session-state' must be a binary or null.")
    return state or None


async def import_session_state(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    """Set a session's state for the run of a migration, as `set_session_state` does."""
    run, session_id = check_run(body.get("run")), named_session(namespace, path, body)
    await namespace.importing.states.store(path, run, session_id, _state_of(body))
    return {}


async def session_state_digests(
    namespace: NamespaceVerbs, path: EntityPath, body: Body
) -> Body | None:
    """Return a page of the sessions that have a state, each with the state's SHA-256."""
    run = check_run(body.get("run"))
    check_entity(namespace, path)
    skip = _count(body, "skip", 0)
    top = min(_count(body, "top", LISTED_MAX), LISTED_MAX)
    found = (await namespace.importing.states.digests(path, run))[skip : skip + top]
    if not found:
        return None
    return {
        "sessions-ids": Array("string", tuple(session_id for session_id, _ in found)),
        "digests": Array("binary", tuple(digest for _, digest in found)),
    }


async def get_message_sessions(
    namespace: NamespaceVerbs, path: EntityPath, body: Body
) -> Body | None:
    """Return a page of the sessions of an entity."""
    check_entity(namespace, path)
    skip = _count(body, "skip", 0)
    top = min(_count(body, "top", LISTED_MAX), LISTED_MAX)
    updated_ms = body.get("last-updated-time", ALL_MS)
    if not isinstance(updated_ms, int) or isinstance(updated_ms, bool):
        raise ArgumentError("'last-updated-time' must be a timestamp.")
    found = await namespace.list_sessions(
        path,
        updated_after_ms=None if updated_ms >= ALL_MS else updated_ms,
        skip=skip,
        top=top,
    )
    return {"skip": Int(skip), "sessions-ids": Array("string", tuple(found))} if found else None


def _count(body: Body, name: str, absent: int) -> int:
    value = body.get(name, absent)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ArgumentError(f"'{name}' must be a whole number, not below 0.")
    return value
