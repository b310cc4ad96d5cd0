"""Everything that a bridge is meant to do for ever comes back, whatever ends it."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.access.access import Access
from bridge.admin.server import AdminServer
from bridge.background.supervisor import Standing, Supervisor
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError
from bridge.cli.access_file import AccessFile, read_file
from bridge.cli.settings import read_settings
from bridge.engine.api import Defer, ReceiveMode
from bridge.gateway.server import Gateway
from bridge.model import entity as model
from bridge.model.entity import Right
from bridge.model.name import EntityPath
from bridge.sidecar.idle_watch import IdleWatch
from bridge.sidecar.journal_watch import JournalWatch
from bridge.topology.entity_table import Changes
from tests.fixtures.broker import Broker
from tests.fixtures.issuing import entry, jwks, signer
from tests.fixtures.listening import free_listener
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.session_door import SessionClient, of_session

WITHIN_S = 120.0

KEPT = frozenset(
    {
        "admin connections",
        "connection",
        "consuming",
        "definitions",
        "definitions of bridges",
        "half-made queues",
        "expired messages",
        "forwarder",
        "idle watch",
        "inboxes",
        "journals",
        "listener",
        "publishing",
        "sequencer",
        "session sweep",
        "settled numbers",
        "sidecar",
        "topics",
        "usage",
    }
)
"""Work that runs until its owner ends it."""

REPEATED = frozenset({"deferred messages", "receiving channel"})
"""Work that runs until it has succeeded once."""

ACCESS = frozenset({"issuer keys", "rules file"})
"""Work of a bridge that has a rules file."""

ELSEWHERE = {
    "bridge watch": "as `REPEATED`; runs while another bridge has pinned something here",
    "commit": "as `REPEATED`; runs until a leader has decided (test_transactions.py)",
    "inquiry": "as `REPEATED`; runs until a leader has answered (test_transactions.py)",
    "clients of sessions": "as `REPEATED`; runs while a client of the library has a session",
    "other bridges": "runs in a whole bridge (test_standbys.py)",
    "private RabbitMQ": "starts a RabbitMQ again (tests/acceptance/test_private.py)",
    "relay entities": "a relay's, not a bridge's (tests/conformance/test_relay.py)",
    "relay route": "a relay's, not a bridge's (tests/conformance/test_relay.py)",
    "transfers": "runs for an entity that had a transaction (test_transfers.py)",
    "session ping": "as `REPEATED`; runs while another bridge owns a receiver's session",
}

FORWARDED = EntityPath("forwarded")
SESSIONS = EntityPath("sessions")


class Ended(BrokerError):
    """The error by which the test ends work."""


class EndingSupervisor(Supervisor):
    """A supervisor whose work a test can end.

    Attributes:
        runs: how often each work has begun.
        to_fail: kinds of work whose next run begins with an error.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs: Counter[tuple[str, str]] = Counter()
        self.to_fail: set[str] = set()
        self._ends: dict[tuple[str, str], asyncio.Future[None]] = {}

    def keep(
        self, kind: str, work: Callable[[], Awaitable[None]], *, subject: str = "", **options: Any
    ) -> Standing:
        """Keep work that can be ended."""
        made = self._endable((kind, subject), work)
        return super().keep(kind, made, subject=subject, **options)

    def repeat(
        self, kind: str, work: Callable[[], Awaitable[None]], *, subject: str = "", **options: Any
    ) -> Standing:
        """Repeat work that can be ended."""
        made = self._endable((kind, subject), work)
        return super().repeat(kind, made, subject=subject, **options)

    def end(self, one: tuple[str, str], error: Exception | None) -> None:
        """End the present run of work as if it had raised an error, or returned."""
        if error is None:
            self._ends[one].set_result(None)
        else:
            self._ends[one].set_exception(error)

    def is_running(self, one: tuple[str, str]) -> bool:
        """Whether a run goes on."""
        return one in self._ends and not self._ends[one].done()

    def _endable(
        self, one: tuple[str, str], work: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            self.runs[one] += 1
            if one[0] in self.to_fail:
                self.to_fail.discard(one[0])
                raise Ended(text="by the test, as it began")
            end = self._ends[one] = asyncio.get_running_loop().create_future()
            running = asyncio.ensure_future(work())
            try:
                await asyncio.wait((running, end), return_when=asyncio.FIRST_COMPLETED)
                await (end if end.done() else running)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                end.cancel()

        return run


@asynccontextmanager
async def open_bridge(
    supervisor: Supervisor, endpoint: Endpoint, broker: Broker
) -> AsyncIterator[tuple[Door, int, int]]:
    """Start a bridge with all its parts; return it, its gateway's port, and that of health."""
    queues = (
        model.Queue(name="orders"),
        model.Queue(name="forwarded", forward_to="orders"),
        model.Queue(name="sessions", requires_session=True),
    )
    listener = free_listener()
    listening = free_listener()
    async with open_door(endpoint, broker.management_url, *queues, supervisor=supervisor) as door:
        admin = AdminServer(
            reasons=lambda: [*door.namespace.state.reasons, *supervisor.reasons],
            warnings=lambda: supervisor.warnings,
            families=no_metrics,
            supervisor=supervisor,
        )
        await admin.start(listener)
        gateway = Gateway(door.namespace, Access(), supervisor=supervisor)
        port = await gateway.listen(listening)
        idle = IdleWatch(door.sidecar, door.namespace.disposal)
        idle.follow(Changes(after={each.name: each for each in queues}))
        watches = [
            supervisor.keep("idle watch", idle.run),
            supervisor.keep("journals", JournalWatch(door.sidecar, door.management).run),
        ]
        try:
            yield door, port, listener.getsockname()[1]
        finally:
            for each in watches:
                each.task.cancel()
            await asyncio.gather(*(each.task for each in watches), return_exceptions=True)
            await gateway.stop()
            await admin.close()


async def no_metrics() -> tuple[()]:
    """Return no metrics."""
    return ()


async def use(door: Door, port: int, admin_port: int) -> None:
    """Use everything that a bridge does, until it has worked."""
    namespace = door.namespace
    sent = f"message {asyncio.get_running_loop().time()}"

    async def works(use: Callable[[], Awaitable[object]]) -> None:
        """Try until it is done: locks and connections may end meanwhile."""

        async def is_done() -> bool:
            try:
                async with asyncio.timeout(120):
                    await use()
            except (Exception, asyncio.CancelledError) as error:
                if not isinstance(error, Exception):
                    raise
                return False
            return True

        await until(is_done, within_s=WITHIN_S)

    async def forward() -> None:
        await namespace.send(FORWARDED, [outgoing(sent)])

    await works(forward)
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE)
    client.receiver.add_credit(1)
    await until(lambda: client.received, within_s=WITHIN_S)
    await client.receiver.close()

    async def defer() -> None:
        await namespace.send(door.path, [outgoing("deferred")])
        client = door.client()
        [received] = await client.receive()
        await namespace.settle(door.path, received.lock_token, Defer())
        await client.receiver.close()
        number = received.sequence_number
        mode = ReceiveMode.RECEIVE_AND_DELETE
        assert await namespace.receive_deferred(door.path, [number], mode)

    await works(defer)

    async def accept() -> None:
        await namespace.send(SESSIONS, [of_session("a", "of a session")])
        session = await SessionClient(door, SESSIONS).accept("a")
        await session.receiver.close()

    await works(accept)
    await works(lambda: namespace.peek(door.path, 1, 1))

    async def knock() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{admin_port}/health/ready") as answer,
        ):
            assert (await answer.json())["warnings"] is not None

    await works(knock)


async def end_all(supervisor: EndingSupervisor, kind: str, error: Exception | None) -> None:
    """End each running work of a kind, and wait until all of it runs again."""
    standing = {(each.kind, each.subject) for each in supervisor.standing if each.kind == kind}
    running = {one: supervisor.runs[one] for one in standing if supervisor.is_running(one)}
    failures = supervisor.failures[kind]
    assert running
    for one in running:
        supervisor.end(one, error)

    def has_come_back() -> bool:
        return all(
            supervisor.runs[one] > runs and supervisor.is_running(one)
            for one, runs in running.items()
        )

    await until(has_come_back, within_s=WITHIN_S)
    assert supervisor.failures[kind] >= failures + len(running)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_whatever_ends_comes_back(endpoint: Endpoint, broker: Broker) -> None:
    """Each work ends once by an error and once by a return; health and metric name it."""
    supervisor = EndingSupervisor()
    supervisor.to_fail = set(REPEATED)
    async with open_bridge(supervisor, endpoint, broker) as (door, port, admin_port):
        await use(door, port, admin_port)
        kinds = {one.kind for one in supervisor.standing}
        assert kinds >= KEPT
        for kind in sorted(KEPT):
            for error in (Ended(text="by the test"), None):
                await end_all(supervisor, kind, error)
            await use(door, port, admin_port)
        assert not supervisor.to_fail, "these have not begun"
        assert {kind for kind, _ in supervisor.runs} >= KEPT | REPEATED


async def test_rules_and_keys_are_followed_after_their_work_has_ended(tmp_path: Path) -> None:
    """A changed rules file and a changed file of keys are taken over all the same."""
    one, two = signer("one"), signer("two")
    keys, rules = tmp_path / "keys.json", tmp_path / "rules.json"
    keys.write_bytes(jwks(one.jwk()))

    def write(role: str) -> None:
        grant = {
            "claim": "sub",
            "value": "an-application",
            "role": f"Azure Service Bus Data {role}",
        }
        rules.write_text(json.dumps({"issuers": [entry(grant, keys={"file": str(keys)})]}))

    write("Sender")
    access = Access(read_file(rules))
    supervisor = EndingSupervisor()
    access.start(supervisor)
    following = AccessFile(read_settings(argparse.Namespace(auth=str(rules)), {}), access)
    standing = supervisor.keep("rules file", following.run)

    def running() -> bool:
        return {one[0] for one in supervisor.runs if supervisor.is_running(one)} == ACCESS

    try:
        await until(running, within_s=WITHIN_S)
        for kind in sorted(ACCESS):
            for error in (Ended(text="by the test"), None):
                await end_all(supervisor, kind, error)
        assert {kind for kind, _ in supervisor.runs} == ACCESS
        assert not (await access.verified(one.token())).allows(Right.LISTEN, EntityPath("q"))
        write("Receiver")
        keys.write_bytes(jwks(two.jwk()))
        await until(lambda: access.generation > 0, within_s=WITHIN_S)
        assert (await access.verified(two.token())).allows(Right.LISTEN, EntityPath("q"))
    finally:
        standing.task.cancel()
        await access.stop()
