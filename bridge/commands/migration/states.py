"""Compares the states of an entity's sessions on two sides, each told to who holds the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bridge.commands.errors import sentence_of
from bridge.commands.migration.peeking import sessions_of
from bridge.commands.migration.state_copying import state_of
from bridge.model.session_id import fold
from bridge.operations.migration.verification import SIDES, Side
from bridge.relay.running.session_lock import CANNOT_BE_LOCKED
from bridge.remote.errors import RemoteError, RemoteNotFound
from bridge.remote.namespace import RemoteNamespace


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A session whose states differ.

    Attributes:
        has_state: the sides that have one.
    """

    session_id: str
    has_state: tuple[Side, ...]


@dataclass(slots=True)
class StateComparison:
    """What was found of an entity.

    Attributes:
        sessions: how many were compared.
        held: sessions that somebody else holds, in words: their states were not told.
    """

    sessions: int = 0
    differences: list[StateDifference] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


async def compared_states(
    namespaces: Sequence[RemoteNamespace],
    path: str,
    asked: asyncio.Event,
    advance: Callable[[], None],
) -> StateComparison:
    """Compare the states of all sessions that either side has, until a signal has come.

    Each session is locked while its state is read, one after the other.

    Args:
        namespaces: the source and the target.
        path: an entity that requires sessions.
        advance: is called after each session.

    Raises:
        RemoteError: a namespace refuses, or does not answer.
    """
    spelled: dict[str, str] = {}
    for namespace in namespaces:
        with suppress(RemoteNotFound):  # an entity that is not there has none
            for session_id in await sessions_of(namespace.management_of(path), asked):
                spelled.setdefault(fold(session_id), session_id)
    found = StateComparison()
    for session_id in spelled.values():
        if asked.is_set():
            break
        states: dict[Side, bytes | None] = {}
        for side, namespace in zip(SIDES, namespaces, strict=True):
            try:
                states[side] = await state_of(namespace, path, session_id)
            except RemoteNotFound:
                states[side] = None
            except RemoteError as error:
                if error.condition != CANNOT_BE_LOCKED:
                    raise
                found.held.append(f"session {session_id!r} at the {side}: {sentence_of(error)}")
        advance()
        if len(states) < len(SIDES):
            continue
        found.sessions += 1
        if states["source"] != states["target"]:
            has_state = tuple(side for side in SIDES if states[side] is not None)
            found.differences.append(StateDifference(session_id, has_state))
    return found
