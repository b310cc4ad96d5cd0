"""A migration's lease while its target is silent, and when another command has taken it."""

from __future__ import annotations

import argparse
import asyncio
import io
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.commands.clock import now_ms
from bridge.commands.migration.connection import ConnectedSides
from bridge.commands.migration.lease import SESSION, TAKE_S, MigrationLease
from bridge.commands.output import Output
from bridge.operations.migration.run_mark import LEASE_PREFIX
from bridge.relay.running.session_lock import SessionLock
from bridge.remote.errors import RemoteError
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.session_receiver import RemoteSessionReceiver
from tests.acceptance.two_bridges import add_profiles
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until

ENTITIES: dict[str, dict[str, object]] = {}
QUEUES: dict[str, dict[str, object]] = {"one": {}}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}
WITHIN_S = 120.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@dataclass
class Held:
    """A lease of the command `back`.

    Attributes:
        asked: set when the command is to stop.
    """

    lease: MigrationLease
    sides: ConnectedSides
    asked: asyncio.Event
    said: io.StringIO

    @property
    def is_held(self) -> bool:
        """Whether no other command can have it."""
        lock = self.lease._lock
        return lock is not None and lock.lease.is_held(now_ms())


@asynccontextmanager
async def held() -> AsyncIterator[Held]:
    """Take the lease between the profiles `here` and `there`."""
    said, asked = io.StringIO(), asyncio.Event()
    arguments = argparse.Namespace(source="here", target="there")
    async with ConnectedSides.connected(arguments) as sides:
        output = Output(stdout=said, stderr=said)
        async with MigrationLease(sides, output, asked, "back") as lease:
            yield Held(lease, sides, asked, said)


def test_a_lease_is_taken_anew_however_long_its_target_is_silent(
    start_broker: Callable[[], Broker],
    start_bridge: StartBridge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as any call to it is made again; the command goes on meanwhile."""
    own = start_broker()
    assert own.node is not None
    bridges = start_bridge(), start_bridge(on=own, vhost="/")
    add_profiles(bridges, tmp_path, monkeypatch)
    asyncio.run(_is_taken_anew(own.node.signal))


async def _is_taken_anew(to_rabbitmq: Callable[[signal.Signals], None]) -> None:
    async with held() as one:
        to_rabbitmq(signal.SIGSTOP)
        try:
            await until(lambda: not one.is_held)
            checked = asyncio.create_task(one.lease.check())
            done, _ = await asyncio.wait((checked,), timeout=TAKE_S + 10)
            assert not done, done
        finally:
            to_rabbitmq(signal.SIGCONT)
        await asyncio.wait_for(checked, WITHIN_S)
        assert one.is_held
        assert not one.asked.is_set(), one.said.getvalue()


@pytest.mark.usefixtures("profiles")
async def test_a_lease_that_another_command_has_taken_stops_this_one() -> None:
    """As soon as it is sure that what it meets is no remainder of its own lock."""
    async with held() as one:
        target = one.sides.target
        name = f"{LEASE_PREFIX}{one.sides.run.partition('-')[2]}"
        async with RemoteNamespace(target.address, target.credential) as other:
            taken: list[RemoteSessionReceiver] = []

            async def takes() -> bool:
                """Take it when the command has lost it, and has not taken it anew yet."""
                if (lock := one.lease._lock) is not None:
                    await lock._session.close()
                with suppress(RemoteError):
                    taken.append(await other.session_receiver(name, SESSION))
                return bool(taken)

            await until(takes)
            lock = SessionLock(taken[0], now_ms, lambda error: None)
            await asyncio.wait_for(one.asked.wait(), WITHIN_S)
            assert lock.lease.is_held(now_ms())
            await lock.release()
    assert "is at work between these namespaces" in one.said.getvalue()
