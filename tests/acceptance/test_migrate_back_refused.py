"""What `busbridge migrate back` leaves as it is, by name, while the rest comes back."""

from __future__ import annotations

import asyncio
import getpass
import subprocess
import sys
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from bridge.cli.main import main
from bridge.commands.migration.connection import back_name
from bridge.commands.migration.holding import holds
from bridge.commands.target import target_named
from bridge.remote.namespace import RemoteNamespace
from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of, receive, send
from tests.acceptance.test_migrate_back import BACK, Migrate, bodies, shows
from tests.acceptance.test_migrate_run import BEGIN, killed, snapshot
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT5S"}
QUEUES: dict[str, dict[str, Any]] = {
    "off-before": LOCK,
    "off-behind": LOCK,
    "many-moved": LOCK,
    "many-beside": LOCK,
    "many-alone": LOCK,
    "twice": {"LockDuration": "PT2M"},
}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit", "Properties": LOCK}]}
EXTRA = "events/Subscriptions/extra"
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def migrate(profiles: None, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """The commands; the profiles `here` and `there` are the two bridges."""
    return Migrate(capsys)


def fill(bridge: Bridge, queue: str, *texts: str) -> None:
    """Send messages, and see that they are there."""
    with client_of(bridge) as client:
        send(client, queue, *texts)
    eventually(shows(bridge, queue, len(texts)), "all is there")


@pytest.mark.parametrize(
    "is_before",
    [pytest.param(True, id="before", marks=pytest.mark.long), pytest.param(False, id="behind")],
)
def test_a_source_that_takes_nothing_is_named_before_anything_is_changed(
    bridges: tuple[Bridge, Bridge], migrate: Migrate, is_before: bool
) -> None:
    """Whether its status was another one before the run, and the target's with it, or not."""
    source, target = bridges
    queue = "off-before" if is_before else "off-behind"
    fill(source, queue, "1")
    words = ["update", "queue", queue, "--status"]
    off = [*words, "SendDisabled", "-n", "here"]
    if is_before:
        assert main(off) == 0
    assert migrate("run", queue).code == 0
    if not is_before:
        assert main(off) == 0
    said = migrate("back", queue)
    assert (said.code, f"{queue}: it is SendDisabled at the source" in said.err) == (1, True)
    assert "Nothing was changed" in said.err
    assert "has come back before" not in said.err
    if not is_before:
        with client_of(target) as client:
            send(client, queue, "it is not held")
        return
    assert main([*words, "Active", "-n", "here"]) == 0
    said = migrate("back", queue)
    assert said.code == 0, said.err
    said = migrate("back", queue)
    assert said.code == 0
    assert f"{queue} is disabled at the target: it has come back before" in said.err


@pytest.mark.long
def test_one_that_no_run_has_copied_stays_while_others_come_back(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """It is named, as is one that the target has not."""
    source, target = bridges
    for queue in ("many-moved", "many-beside", "many-alone"):
        fill(source, queue, "1", "2")
    assert migrate("run", "many-moved").code == 0
    assert main(["create", "queue", "many-beside", "-n", "there"]) == 0
    with client_of(target) as client, client.get_queue_receiver("many-moved") as receiver:
        (first,) = receive(receiver, 1)
        receiver.complete_message(first)
    eventually(shows(target, "many-moved", 1), "it is settled")
    said = migrate("back", "many-alone")
    assert (said.code, "many-alone: it is not at the target" in said.err) == (1, True)

    said = migrate("back", "many-*")
    assert said.code == 3, said.err
    assert "many-beside: no run that has come to its end has copied it" in said.err
    assert "many-alone: it is not at the target" in said.err
    assert bodies(snapshot(source, "many-moved"), "many-moved") == {"2": "active"}
    for queue in ("many-beside", "many-alone"):
        assert bodies(snapshot(source, queue), queue) == {"1": "active", "2": "active"}
    with client_of(target) as client:
        send(client, "many-beside", "it is neither held nor disabled")
        with pytest.raises(Exception, match="disabled"):
            send(client, "many-moved", "x")


@pytest.mark.long
def test_what_the_target_alone_has_is_counted_and_named(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """A subscription that was made there has nowhere to come back to."""
    source, target = bridges
    with client_of(source) as client, client.get_topic_sender("events") as sender:
        sender.send_messages(ServiceBusMessage("event 1"))
    eventually(shows(source, "events/Subscriptions/audit", 1), "it is there")
    assert migrate("run", "events").code == 0
    assert main(["create", "subscription", "events", "extra", "-n", "there"]) == 0
    with client_of(target) as client, client.get_topic_sender("events") as sender:
        sender.send_messages(ServiceBusMessage("event 2"))
    eventually(shows(target, EXTRA, 1), "it is there")

    said = migrate("back", "events")
    assert said.code == 3
    assert f"{EXTRA}: the target alone has it: 1 messages stay there" in said.err
    assert "Nothing was changed: 2 messages are new at " in said.err
    said = migrate("back", "events", "--return")
    assert (said.code, f"{EXTRA}: the target alone has it" in said.err) == (1, True)
    said = migrate("back", "events", "--leave-new")
    assert said.code == 3, said.err
    assert f"{EXTRA}: the target alone has it: 1 messages stay there" in said.err
    new = {row["entity"]: row["new"] for row in said.rows if row["part"] == "entity"}
    assert new == {"events": 1, EXTRA: 1}


def test_no_two_ways_back_share_a_hold(bridges: tuple[Bridge, Bridge], migrate: Migrate) -> None:
    """The second one is refused while the first one is at work, and changes nothing."""
    source, _ = bridges
    fill(source, "twice", "1")
    assert migrate("run", "twice").code == 0
    process = subprocess.Popen([sys.executable, "-c", BEGIN, *BACK, "twice"])

    async def asked() -> bool:
        login = target_named("there")
        async with RemoteNamespace(login.address, login.credential) as namespace:
            return await holds(namespace, "twice", back_name(target_named("here")))

    def is_held() -> bool:
        return asyncio.run(asked())

    try:
        eventually(is_held, "the first one holds it")
        said = migrate("back", "twice", "--return")
        assert said.code == 1
        assert f"`busbridge migrate back` of {getpass.getuser()} on " in said.err
        assert f", process {process.pid}, since 20" in said.err
        assert is_held()
    finally:
        killed(process)
