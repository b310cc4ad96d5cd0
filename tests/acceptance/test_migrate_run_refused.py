"""What stops `busbridge migrate run` by name: marks, holds, a source that is not as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from bridge.cli.main import main
from bridge.commands.migration.connection import run_name
from bridge.commands.migration.copying import places_of
from bridge.commands.migration.holding import TargetHolding
from bridge.commands.migration.mark import VerifiedMark
from bridge.commands.migration.sides import SideReading
from bridge.commands.output import Progress
from bridge.commands.target import target_named
from bridge.model import entity as model
from bridge.operations.migration.copy_effects import CopyStopped
from bridge.operations.migration.run_mark import mark_name
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.credentials import credential_in
from bridge.remote.errors import RemoteError
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.patience import Patience
from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of, receive, send
from tests.acceptance.test_migrate_run import Run, begun, fill_many, marks, there
from tests.acceptance.two_bridges import config, two_bridges
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

QUEUES: dict[str, dict[str, Any]] = {
    "marked": {},
    "taken": {},
    "early": {},
    "small": {},
    "large": {},
    "lively": {"MaxDeliveryCount": 7},
}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def bridges(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Bridge, Bridge]]:
    """The bridge with the messages, and an empty one."""
    folder = tmp_path_factory.mktemp("migration")
    source = config(folder, "source", QUEUES, TOPIC)
    target = config(folder, "target", {"lively": {}}, TOPIC)
    with two_bridges(broker, source, target) as both:
        yield both


@pytest.fixture
def run(profiles: None, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command; the profiles `here` and `there` are the two bridges."""
    return Run(capsys)


@asynccontextmanager
async def remote(
    bridge: Bridge,
) -> AsyncIterator[tuple[RemoteNamespace, RemoteAdministration]]:
    """A bridge, as a client sees it that tries nothing again."""
    text = bridge.connection_string
    credential = credential_in(text)
    assert credential is not None
    address = RemoteAddress.of(text)
    async with (
        RemoteNamespace(address, credential, patience=Patience(total_s=0)) as namespace,
        RemoteAdministration(address, credential) as administration,
    ):
        yield namespace, administration


def is_held(bridge: Bridge, path: str) -> bool:
    """Whether an entity is held: a receiver is refused, and told why."""

    async def refused() -> bool:
        async with remote(bridge) as (namespace, _):
            try:
                await (await namespace.receiver(path)).close()
            except RemoteError as error:
                return "is held by the migration" in str(error)
            return False

    return asyncio.run(refused())


def test_a_mark_that_stays_when_its_entities_were_deleted_is_refused(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """It would say that all is there; the text names its queue."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "marked", "paid")
    name = mark_name(run_name(target_named("here")), ["marked"])

    async def mark() -> None:
        async with remote(target) as (_, administration):
            await VerifiedMark(administration, name, {"marked"}).make()

    asyncio.run(mark())
    said = run("--yes", "marked")
    assert said.code == 1
    assert "marked is not at the target" in said.err
    assert name in said.err
    assert there(target, "marked") == {}
    assert main(["delete", "queue", name, "-n", "there", "--yes"]) == 0
    assert run("--yes", "marked").code == 0
    assert not marks(target)
    assert len(there(target, "marked")) == 1


def test_a_subscription_that_is_new_since_its_topic_was_held_is_held_too(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """The run was killed before, and is begun again."""
    source, target = bridges

    async def hold() -> None:
        async with remote(target) as (namespace, _):
            for path in ("events/Subscriptions/audit", "events"):
                await namespace.management_of(path).hold(run_name(target_named("here")))

    asyncio.run(hold())
    assert main(["create", "subscription", "events", "mail", "-n", "here"]) == 0
    with client_of(source) as client, client.get_topic_sender("events") as sender:
        soon = datetime.now(UTC) + timedelta(seconds=40)
        (number,) = sender.schedule_messages(ServiceBusMessage("soon"), soon)
    said = run("--yes", "events")
    assert (said.code, "is due at" in said.err) == (1, True)
    assert is_held(target, "events/Subscriptions/audit")
    assert is_held(target, "events/Subscriptions/mail")
    with client_of(source) as client, client.get_topic_sender("events") as sender:
        sender.cancel_scheduled_messages(number)
        sender.send_messages(ServiceBusMessage("to both"))
    assert main(["delete", "subscription", "events", "audit", "-n", "here", "--yes"]) == 0
    said = run("--yes", "events")
    assert said.code == 1
    assert "events/Subscriptions/audit: an earlier run holds it at the target" in said.err
    assert main(["delete", "subscription", "events", "audit", "-n", "there", "--yes"]) == 0
    said = run("--yes", "events")
    assert said.code == 0, said.err
    assert len(there(target, "events/Subscriptions/mail")) == 1
    assert not is_held(target, "events/Subscriptions/mail")


def test_what_another_run_holds_is_not_said_to_be_held_by_none(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """To purge it would take what that run has copied."""
    _, target = bridges
    assert main(["create", "queue", "taken", "-n", "there"]) == 0
    with client_of(target) as client:
        send(client, "taken", "of another")
        eventually(lambda: bool(there(target, "taken")), "it is there")

    async def hold() -> None:
        async with remote(target) as (namespace, _):
            await namespace.management_of("taken").hold("another")

    asyncio.run(hold())
    said = run("--yes", "taken")
    assert said.code == 1
    assert "is held by the migration 'another'" in said.err
    assert "purge" not in said.err


def test_a_message_that_is_received_when_its_entity_was_verified_stops_the_run(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """It is seen when all entities are, by the count that fell."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "small", "one", "two")
        fill_many(source, "large", 4_000, 0)
        process = begun("small", "large")
        eventually(lambda: len(there(target, "large")) > 1_000, "the small one is verified")
        with client.get_queue_receiver("small") as receiver:
            receiver.complete_message(receive(receiver, 1)[0])
    assert process.wait(240) == 1
    said = run("--yes", "small", "large")
    assert said.code == 1
    assert "small: the target has message 1, which the source has not" in said.err
    assert is_held(target, "small")


async def begin(target: Bridge, before: Any = None) -> TargetHolding:
    """Hold the queue `lively`, after something that happens when the target was read."""
    async with remote(target) as (namespace, administration):
        there = await SideReading(administration, Progress(None)).side()
        if before is not None:
            await asyncio.to_thread(before)
        holding = TargetHolding(namespace, "run-1", there)
        queue = model.Queue(name="lively")
        try:
            await holding.begin(queue, places_of(queue, lambda path: True))
        except CopyStopped:
            await holding.release()
            raise
        return holding


def test_an_entity_that_lives_at_the_target_is_held_before_its_definition_is_changed(
    bridges: tuple[Bridge, Bridge],
) -> None:
    """Messages that come when the target was read are seen behind the hold; it ends then."""
    _, target = bridges
    with client_of(target) as client:

        def sends() -> None:
            send(client, "lively", "its own")
            eventually(lambda: bool(there(target, "lively")), "it is there")

        with pytest.raises(CopyStopped, match="lively: the target has messages of its own, such"):
            asyncio.run(begin(target, sends))
        with client.get_queue_receiver("lively") as receiver:
            receiver.complete_message(receive(receiver, 1)[0])
    eventually(lambda: not there(target, "lively"), "it is empty")
    assert asyncio.run(begin(target)).empty == {"lively"}
    assert is_held(target, "lively")
