"""The commands of a migration behind each other, as they are not meant: nothing is lost by that."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from bridge.cli.main import main
from bridge.commands.migration.connection import back_name
from bridge.commands.target import target_named
from bridge.operations.migration.run_mark import CLOCKS_MS
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.namespace import RemoteNamespace
from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, send
from tests.acceptance.test_migrate_run import snapshot
from tests.acceptance.two_bridges import MigrateCommands
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT5S"}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}
QUEUES: dict[str, dict[str, Any]] = {
    "back": LOCK,
    "again": {**LOCK, "RequiresSession": True},
    "aside": LOCK,
    "beside": LOCK,
    "anew": LOCK,
}
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


class Migrate(MigrateCommands):
    """The commands, with both bridges as profiles."""

    def __call__(self, verb: str, *words: str) -> Said:
        """Run one that is to watch for a moment, and agrees to all."""
        return self.said(verb, "--still", "0.5", "--yes", *words)

    def finish(self, *words: str) -> Said:
        """Empty the source."""
        return self.said("finish", "--yes", target_named("here").address.namespace, *words)


@pytest.fixture
def migrate(profiles: None, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """The commands; the profiles `here` and `there` are the two bridges."""
    return Migrate(capsys)


def test_an_entity_that_has_come_back_is_not_emptied(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """The source is in use again: what it has is nowhere else in use."""
    source, _ = bridges
    with client_of(source) as client:
        send(client, "back", "one")
    eventually(lambda: len(snapshot(source, "back")["back"]) == 1, "it is there")
    assert migrate("run", "back").code == 0
    assert migrate("back", "back").code == 0
    assert main(["update", "queue", "back", "-n", "there", "--status", "Active"]) == 0
    said = migrate.finish("back")
    assert (said.code, "back: it has come back to the source" in said.err) == (1, True)
    assert "Nothing was removed" in said.err
    assert len(snapshot(source, "back")["back"]) == 1


def test_a_run_that_is_given_again_brings_no_old_states(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """The target is in use, with nothing in it by now: it is not held for ever, either."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "again", ServiceBusMessage("x", session_id="s0"))
        with client.get_queue_receiver("again", session_id="s0", max_wait_time=30) as receiver:
            receiver.session.set_state(b"old")
    assert migrate("run", "again").code == 0
    with (
        client_of(target) as client,
        client.get_queue_receiver("again", session_id="s0", max_wait_time=120) as receiver,
    ):
        (found,) = receiver.receive_messages(max_wait_time=120)
        receiver.complete_message(found)
        receiver.session.set_state(None)

    said = migrate("run", "again")
    assert said.code == 1
    assert "again: an earlier run has ended there" in said.err
    with client_of(target) as client:
        send(client, "again", ServiceBusMessage("y", session_id="s0"))
        with client.get_queue_receiver("again", session_id="s0", max_wait_time=120) as receiver:
            assert receiver.session.get_state() is None
            assert [str(each) for each in receiver.receive_messages(max_wait_time=120)] == ["y"]


def test_what_a_source_that_was_made_anew_has_counts_as_copied_nowhere(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """It gives the numbers of the messages that were copied once more."""
    source, _ = bridges
    with client_of(source) as client:
        send(client, "anew", "copied")
    eventually(lambda: len(snapshot(source, "anew")["anew"]) == 1, "it is there")
    assert migrate("run", "anew").code == 0
    time.sleep(CLOCKS_MS / 1_000 + 1.0)  # sides' clocks may differ so far
    assert main(["delete", "queue", "anew", "-n", "here", "--yes"]) == 0
    assert main(["create", "queue", "anew", "-n", "here"]) == 0
    with client_of(source) as client:
        send(client, "anew", "new")
    eventually(lambda: list(snapshot(source, "anew")["anew"]) == [1], "it is there")
    for said in (migrate.finish("anew"), migrate("back", "anew")):
        assert said.code == 1
        assert "anew: the source's was made behind its copy" in said.err
    assert list(snapshot(source, "anew")["anew"]) == [1]


def hold(bridge: Bridge, path: str, run: str, *, is_begun: bool = True) -> None:
    """Begin or end the hold of an entity."""

    async def done() -> None:
        credential = credential_in(bridge.connection_string)
        assert credential is not None
        address = RemoteAddress.of(bridge.connection_string)
        async with RemoteNamespace(address, credential) as namespace:
            management = namespace.management_of(path)
            await (management.hold(run) if is_begun else management.release(run))

    asyncio.run(done())


def test_a_hold_that_cannot_be_ended_keeps_no_other(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """One entity is held by another run; the other one takes messages behind the command."""
    _, target = bridges
    assert migrate("run", "aside", "beside").code == 0
    hold(target, "aside", "another")
    hold(target, "beside", back_name(target_named("here")))  # as a killed command leaves it
    try:
        said = migrate("back", "aside", "beside")
        assert (said.code, "aside" in said.err) == (1, True)
        with client_of(target) as client:
            send(client, "beside", "x")
    finally:
        hold(target, "aside", "another", is_begun=False)
