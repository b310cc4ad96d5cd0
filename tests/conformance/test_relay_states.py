"""States of sessions that have no messages, between two gateways in memory."""

from __future__ import annotations

import pytest

from bridge.model.errors import MessageSizeExceeded
from bridge.model.name import EntityPath
from bridge.relay.running import route_run
from bridge.remote.management import RemoteManagement
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.remote import remote, text
from tests.conformance.served import gateway
from tests.conformance.test_relay import SESSIONS, bodies, fill, relaying
from tests.fixtures.waiting import until


async def set_state(port: int, session_id: str, state: bytes | None) -> None:
    """Set a session's state."""
    async with remote(port) as namespace:
        session = await namespace.session_receiver("q", session_id)
        await session.set_state(state)
        await session.close()


async def state_of(port: int, session_id: str) -> bytes | None:
    """Return a session's state."""
    async with remote(port) as namespace:
        session = await namespace.session_receiver("q", session_id)
        found = await session.state()
        await session.close()
        return found


async def until_left(management: RemoteManagement, *ids: str) -> None:
    """Wait until no other sessions have a state at the source."""

    async def holds() -> bool:
        return set(await management.message_sessions(updated_after_ms=0)) <= set(ids)

    await until(holds)


async def test_a_state_goes_to_which_no_message_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moved: the next message may come to the target by another way, and its receiver looks for it.

    Of many sessions each one; what the target's session has already is newer, and stays.
    """
    monkeypatch.setattr(route_run, "STATES_S", 0.1)
    ids = [f"s{each}" for each in range(230)]
    async with gateway(queue=SESSIONS) as (_, from_port), gateway(queue=SESSIONS) as (_, to_port):
        async with remote(from_port) as namespace:
            for each in ids:
                session = await namespace.session_receiver("q", each)
                await session.set_state(each.encode())
                await session.close()
        await set_state(to_port, "s7", b"newer")
        await fill(from_port, [text("m", "s8")])
        async with (
            remote(from_port) as one,
            remote(to_port) as other,
            relaying(from_port, to_port, states=True) as relay,
        ):
            (status,) = relay.statuses
            source, target = await one.management("q"), await other.management("q")
            await until_left(source)
            await until(lambda: status.relayed == 1 and not status.unconfirmed)
            assert len(await target.message_sessions(200, 100)) == 30
            assert not status.last_error
        for each in ("s0", "s8", "s229"):
            assert await state_of(to_port, each) == each.encode()
        assert await state_of(to_port, "s7") == b"newer"
        assert await bodies(to_port, session_id="s8") == ["m"]


async def test_a_state_waits_for_who_has_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the source, or at the target; others are not held up by it."""
    monkeypatch.setattr(route_run, "STATES_S", 0.1)
    async with gateway(queue=SESSIONS) as (_, from_port), gateway(queue=SESSIONS) as (_, to_port):
        for each in ("here", "there", "free"):
            await set_state(from_port, each, b"old")
        async with remote(from_port) as one, remote(to_port) as other:
            here = await one.session_receiver("q", "here")
            there = await other.session_receiver("q", "there")
            source = await one.management("q")
            async with relaying(from_port, to_port, states=True):
                await until_left(source, "here", "there")
                assert await state_of(to_port, "free") == b"old"
                await here.set_state(b"new")
                await here.close()
                await there.set_state(b"newer")
                await there.close()
                await until_left(source)
        assert await state_of(to_port, "here") == b"new"
        assert await state_of(to_port, "there") == b"newer"


class Refusing(MemoryNamespace):
    """A namespace that takes no state of the session `a`."""

    async def set_session_state(
        self, path: EntityPath, session_id: str, state: bytes | None
    ) -> None:
        """Store something with a session, if it is another one."""
        if session_id == "a":
            raise MessageSizeExceeded("The state is too large.")
        await super().set_session_state(path, session_id, state)


async def test_a_state_that_the_target_refuses_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stays at the source, and the error is told."""
    monkeypatch.setattr(route_run, "STATES_S", 0.1)
    async with (
        gateway(queue=SESSIONS) as (_, from_port),
        gateway(namespace=Refusing(SESSIONS)) as (_, to_port),
    ):
        for each in "ab":
            await set_state(from_port, each, b"old")
        async with remote(from_port) as one, relaying(from_port, to_port, states=True) as relay:
            await until_left(await one.management("q"), "a")
            assert "too large" in relay.statuses[0].last_error
        assert await state_of(to_port, "b") == b"old"
        assert await state_of(from_port, "a") == b"old"


class Shrinking(MemoryNamespace):
    """A namespace where states of the first page are gone before the second one is asked for."""

    async def list_sessions(
        self, path: EntityPath, *, updated_after_ms: int | None, skip: int, top: int
    ) -> list[str]:
        """Return a page; what is behind it moves up."""
        page = await super().list_sessions(
            path, updated_after_ms=updated_after_ms, skip=skip, top=top
        )
        if len(page) == top:
            for each in page[:5]:
                self._sessions(path)._states.pop(each, None)
        return page


async def test_states_that_move_up_while_they_are_listed_are_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those before them went with their sessions' messages meanwhile."""
    monkeypatch.setattr(route_run, "STATES_S", 0.1)
    namespace = Shrinking(SESSIONS)
    async with gateway(namespace=namespace) as (_, from_port):
        states = namespace._sessions(EntityPath("q"))._states
        states.update({f"s{each:03}": (b"old", 1) for each in range(130)})
        async with (
            gateway(queue=SESSIONS) as (_, to_port),
            relaying(from_port, to_port, states=True),
        ):
            await until(lambda: not states)


async def test_without_states_they_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the route says."""
    monkeypatch.setattr(route_run, "STATES_S", 0.1)
    async with gateway(queue=SESSIONS) as (_, from_port), gateway(queue=SESSIONS) as (_, to_port):
        await set_state(from_port, "s", b"old")
        await fill(from_port, [text("m", "s")])
        async with relaying(from_port, to_port) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed == 1 and not status.unconfirmed)
        assert await state_of(from_port, "s") == b"old"
        assert await state_of(to_port, "s") is None
