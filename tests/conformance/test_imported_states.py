"""The operations for states of sessions that a migration imports: who may ask, and what for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256

import pytest

from bridge.message.envelopes import ImportedMessage
from bridge.model.entity import AuthorizationRule, Right
from bridge.model.errors import EntityConflict
from bridge.model.name import EntityPath
from bridge.remote.credentials import SharedKey
from bridge.remote.errors import RemoteRefused, RemoteUnauthorized
from bridge.remote.management import RemoteManagement
from bridge.remote.namespace import RemoteNamespace
from bridge.wire.series_numbers import SeriesNumbers
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.door import ROOT_RULE
from tests.conformance.remote import ONCE, ROOT, remote
from tests.conformance.served import QUEUE, gateway

CLERK = AuthorizationRule(
    name="clerk", primary_key="k", rights=frozenset({Right.SEND, Right.LISTEN})
)
RUN = "run-1"


class KeptStates:
    """Keeps what is imported, for one run."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes | None] = {}

    async def store(self, path: EntityPath, run: str, session_id: str, state: bytes | None) -> None:
        """Keep a state."""
        if run != RUN:
            raise EntityConflict(f"'{path}' is not held by the migration '{run}'.")
        self.kept[session_id] = state

    async def digests(self, path: EntityPath, run: str) -> list[tuple[str, bytes]]:
        """Digest what is kept."""
        return sorted((each, sha256(state).digest()) for each, state in self.kept.items() if state)


class StateImports:
    """Imports states, and no messages."""

    def __init__(self) -> None:
        self.states = KeptStates()

    def check(self, path: EntityPath, run: str) -> None:
        """No link imports here."""
        raise NotImplementedError

    async def last_numbers(self, path: EntityPath, run: str) -> list[SeriesNumbers]:
        """Nor are there numbers."""
        raise NotImplementedError

    async def store(self, path: EntityPath, run: str, batch: Sequence[ImportedMessage]) -> None:
        """Nor does this."""
        raise NotImplementedError


class WithSessions(MemoryNamespace):
    """A queue with sessions, and a plain one."""

    def __init__(self) -> None:
        super().__init__(replace(QUEUE, requires_session=True), replace(QUEUE, name="plain"))
        self.imports = StateImports()

    @property
    def importing(self) -> StateImports:
        """What imports states."""
        return self.imports


@asynccontextmanager
async def served(
    credential: SharedKey = ROOT, entity: str = "q"
) -> AsyncIterator[tuple[RemoteManagement, KeptStates]]:
    """Serve one queue with sessions, and connect to it."""
    namespace = WithSessions()
    client: RemoteNamespace
    async with (
        gateway(ROOT_RULE, CLERK, namespace=namespace) as (_, port),
        remote(port, credential, patience=ONCE) as client,
    ):
        yield await client.management(entity), namespace.imports.states


async def test_a_run_stores_states_and_reads_their_digests_by_pages() -> None:
    """No session is accepted; no bytes are none."""
    async with served() as (management, states):
        for session_id, state in (("a", b"one"), ("b", b"two"), ("c", None), ("d", b"")):
            await management.import_session_state(RUN, session_id, state)
        assert states.kept == {"a": b"one", "b": b"two", "c": None, "d": None}
        assert await management.session_state_digests(RUN) == {
            "a": sha256(b"one").digest(),
            "b": sha256(b"two").digest(),
        }
        assert list(await management.session_state_digests(RUN, 1, 1)) == ["b"]
        assert await management.session_state_digests(RUN, 2) == {}


async def test_states_are_imported_with_the_right_manage_by_the_run_that_holds() -> None:
    """Who sends and listens may not set what he has not accepted."""
    async with served(SharedKey("clerk", "k")) as (management, states):
        with pytest.raises(RemoteUnauthorized, match="'Manage'"):
            await management.import_session_state(RUN, "a", b"x")
        with pytest.raises(RemoteUnauthorized, match="'Manage'"):
            await management.session_state_digests(RUN)
        assert states.kept == {}
    async with served() as (management, states):
        with pytest.raises(RemoteRefused, match="not held by the migration 'other'"):
            await management.import_session_state("other", "a", b"x")
        with pytest.raises(RemoteRefused, match="1 to 64 letters"):
            await management.import_session_state("a b", "a", b"x")
        with pytest.raises(RemoteRefused, match="1 to 64 letters"):
            await management.session_state_digests("")
        assert states.kept == {}


@pytest.mark.parametrize("entity", ["plain", "q/$deadletterqueue"])
async def test_what_has_no_sessions_takes_no_states(entity: str) -> None:
    """A dead-letter queue has none."""
    async with served(entity=entity) as (management, states):
        with pytest.raises(RemoteRefused, match="does not require sessions"):
            await management.import_session_state(RUN, "a", b"x")
        with pytest.raises(RemoteRefused, match="does not require sessions"):
            await management.session_state_digests(RUN)
        assert states.kept == {}
