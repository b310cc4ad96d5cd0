"""`busbridge migrate run` with states of sessions; `migrate verify` finds what differs then."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from bridge.cli.main import main
from bridge.commands.migration.connection import run_name
from bridge.commands.migration.copying import imported
from bridge.commands.target import NamespaceLogin
from bridge.operations.migration.copy_effects import CopyPlace
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.errors import RemoteError
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.testing.process import Bridge
from bridge.topology.parts import SESSION_STATE_BYTES_MAX
from bridge.wire.amqp10.primitives import encode_list, encode_uint
from bridge.wire.amqp10.scalars import Int, Long
from bridge.wire.mapping import sections
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, send
from tests.acceptance.test_migrate_run import killed
from tests.acceptance.two_bridges import MigrateCommands
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PLANTED = ("nothing", "number", "state", "byte", "count", "session")
WITH_SESSIONS = {"RequiresSession": True}
QUEUES: dict[str, dict[str, Any]] = {
    "states": WITH_SESSIONS,
    "parts": {**WITH_SESSIONS, "EnablePartitioning": True},
    "locked": WITH_SESSIONS,
    "changed": WITH_SESSIONS,
    "own": WITH_SESSIONS,
    "killed": WITH_SESSIONS,
} | {f"planted-{each}": WITH_SESSIONS for each in PLANTED}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit", "Properties": WITH_SESSIONS}]}
AUDIT = "events/Subscriptions/audit"
LARGE = bytes(SESSION_STATE_BYTES_MAX)
RUN = "planting"

BEGIN = "import sys; from bridge.cli.main import main; sys.exit(main(sys.argv[1:]))"
WORDS = ("--from", "here", "--to", "there")


def login(bridge: Bridge) -> NamespaceLogin:
    """The address and key of a bridge."""
    credential = credential_in(bridge.connection_string)
    assert credential is not None
    return NamespaceLogin("bridge", RemoteAddress.of(bridge.connection_string), credential)


def at(bridge: Bridge, work: Callable[[RemoteNamespace], Awaitable[Any]]) -> Any:
    """Do something at a bridge, and return its result."""
    there = login(bridge)

    async def done() -> Any:
        async with RemoteNamespace(there.address, there.credential) as namespace:
            return await work(namespace)

    return asyncio.run(done())


def set_states(bridge: Bridge, path: str, states: dict[str, bytes | None]) -> None:
    """Set the states of sessions, as their receivers do."""

    async def set_one(namespace: RemoteNamespace, session_id: str, state: bytes | None) -> None:
        receiver = await namespace.session_receiver(path, session_id)
        await receiver.set_state(state)
        await receiver.close()

    async def set_all(namespace: RemoteNamespace) -> None:
        left = iter(states.items())
        while part := list(islice(left, 20)):
            await asyncio.gather(*(set_one(namespace, *each) for each in part))

    at(bridge, set_all)


class Commands(MigrateCommands):
    """The commands, with both bridges as profiles."""

    def __call__(self, verb: str, *words: str) -> Said:
        """Do one."""
        return self.said(verb, *words)

    def run(self, *paths: str) -> Said:
        """Copy."""
        return self("run", "--still", "0.5", "--yes", *paths)

    def verify(self, *paths: str) -> Said:
        """Compare, with the states."""
        return self("verify", "--session-states", *paths)


@pytest.fixture
def migrate(profiles: None, capsys: pytest.CaptureFixture[str]) -> Commands:
    """The commands; the profiles `here` and `there` are the two bridges."""
    return Commands(capsys)


def test_states_of_queues_partitions_and_subscriptions_are_at_the_target(
    bridges: tuple[Bridge, Bridge], migrate: Commands
) -> None:
    """Of sessions with and without messages; the largest one, and none where it was cleared."""
    source, target = bridges
    states: dict[str, bytes | None] = {f"s{number}": b"state %d" % number for number in range(24)}
    states["large"] = LARGE
    with client_of(source) as client:
        for queue in ("states", "parts"):
            for number in range(3):
                send(client, queue, ServiceBusMessage("x", session_id=f"s{number}"))
            send(client, queue, ServiceBusMessage("x", session_id="none"))
        with client.get_topic_sender("events") as sender:
            sender.send_messages(ServiceBusMessage("x", session_id="s1"))
    for path in ("states", "parts", AUDIT):
        set_states(source, path, {**states, "cleared": b"x"})
        set_states(source, path, {"cleared": None})
    (row,) = [each for each in migrate("plan", "--peek", "states").rows if each["part"] == "entity"]
    assert (row["sessions"], row["session_states"]) == (26, 25)

    said = migrate.run("states", "parts", "events", AUDIT)
    assert said.code == 0, said.err
    rows = {row["entity"]: row["session_states"] for row in said.rows}
    assert rows == {"states": 25, "parts": 25, "events": 25}
    said = migrate.verify("states", "parts", "events", AUDIT)
    assert said.code == 0, said
    compared = [each["compared"] for each in said.rows if each["part"] == "session_states"]
    assert sorted(compared) == [25, 26, 26]
    with (
        client_of(target) as client,
        client.get_queue_receiver("states", session_id="s1", max_wait_time=120) as receiver,
    ):
        assert receiver.session.get_state() == b"state 1"
        assert [str(each) for each in receiver.receive_messages(max_wait_time=120)] == ["x"]


def test_a_session_that_somebody_has_stops_the_run_and_nothing_is_held(
    bridges: tuple[Bridge, Bridge], migrate: Commands
) -> None:
    """It is named; when it is free, the same command copies its state."""
    source, target = bridges
    with (
        client_of(source) as client,
        client.get_queue_receiver("locked", session_id="red", max_wait_time=5) as receiver,
    ):
        receiver.session.set_state(b"paid")
        said = migrate.run("locked")
        assert said.code == 1
        assert "locked: session 'red': " in said.err
        with client_of(target) as there:
            send(there, "locked", ServiceBusMessage("x", session_id="blue"))
            with there.get_queue_receiver("locked", session_id="blue", max_wait_time=120) as goes:
                assert goes.receive_messages(max_wait_time=120)
    assert main(["delete", "queue", "locked", "-n", "there", "--yes"]) == 0
    assert migrate.run("locked").code == 0
    assert migrate.verify("locked").code == 0


def run_id(source: Bridge) -> str:
    """The name by which the command holds the target's entities."""
    return run_name(login(source))


def digests(bridges: tuple[Bridge, Bridge], path: str) -> dict[str, bytes]:
    """What a held entity of the target has; nothing while it is not held."""

    async def found(namespace: RemoteNamespace) -> dict[str, bytes]:
        try:
            return await namespace.management_of(path).session_state_digests(run_id(bridges[0]))
        except RemoteError:
            return {}

    found_states: dict[str, bytes] = at(bridges[1], found)
    return found_states


def begun(path: str) -> subprocess.Popen[bytes]:
    """The command as a process."""
    words = ("migrate", "run", *WORDS, "--still", "0.1", "--yes", path)
    return subprocess.Popen([sys.executable, "-c", BEGIN, *words])


def test_a_state_that_changed_at_the_source_stops_the_next_run_by_name(
    bridges: tuple[Bridge, Bridge], migrate: Commands
) -> None:
    """What a killed run has copied is not overwritten; the target's entity is made anew."""
    source, _ = bridges
    set_states(source, "changed", {f"s{number}": b"before" for number in range(200)})
    process = begun("changed")
    eventually(lambda: "s0" in digests(bridges, "changed"), "it copies")
    killed(process)
    set_states(source, "changed", {"s0": b"behind"})
    said = migrate.run("changed")
    assert said.code == 1
    assert (
        "changed: the target has a state of session 's0', and the source another: the source has "
        "changed. Delete the entity at the target, and begin again." in said.err
    )
    assert main(["delete", "queue", "changed", "-n", "there", "--yes"]) == 0
    assert migrate.run("changed").code == 0
    assert migrate.verify("changed").code == 0


def test_states_of_the_targets_own_are_not_overwritten(
    bridges: tuple[Bridge, Bridge], migrate: Commands
) -> None:
    """The entity is in use there, though it has no messages."""
    source, target = bridges
    set_states(source, "own", {"s0": b"the source's"})
    assert main(["create", "queue", "own", "--requires-session", "-n", "there"]) == 0
    set_states(target, "own", {"s0": b"its own"})
    said = migrate.run("own")
    assert said.code == 1
    assert "own: the target has a state of session 's0' of its own" in said.err
    set_states(target, "own", {"s0": None})
    assert migrate.run("own").code == 0
    assert migrate.verify("own").code == 0


def test_each_state_is_there_once_though_command_and_bridges_are_killed(
    bridges: tuple[Bridge, Bridge], migrate: Commands
) -> None:
    """While states are copied: either bridge, then the command."""
    source, target = bridges
    count = 300
    set_states(source, "killed", {f"s{number}": b"%d" % number * 200 for number in range(count)})
    with client_of(source) as client:
        send(client, "killed", *(ServiceBusMessage("x", session_id=f"s{n}") for n in range(50)))
    process = begun("killed")
    try:
        for copied, victim in ((20, target), (80, source), (140, target)):
            eventually(
                lambda copied=copied: (
                    process.poll() is not None or len(digests(bridges, "killed")) >= copied
                ),
                "it copies states",
            )
            assert process.poll() is None
            assert len(digests(bridges, "killed")) < count, "it is among the states"
            victim.restart()
        eventually(
            lambda: process.poll() is not None or len(digests(bridges, "killed")) >= 200,
            "it copies more states",
        )
    finally:
        killed(process)
    assert migrate.run("killed").code == 0
    said = migrate.verify("killed")
    assert said.code == 0, said
    (row,) = [each for each in said.rows if each["part"] == "session_states"]
    assert (row["compared"], row["differing"]) == (count, 0)


# -- planted differences


async def last_message(management: RemoteManagement) -> RemoteMessage:
    """The last message of an entity."""
    page: list[RemoteMessage] = []
    while len(page) < 2:
        page = list(await management.peek(1, 10))
    return page[-1]


def annotated(message: RemoteMessage, **values: Any) -> RemoteMessage:
    """The message with other annotations."""
    named = {f"x-opt-{name.replace('_', '-')}": value for name, value in values.items()}
    changed = RemoteMessage.of(annotations={**message.annotation_values, **named})
    return replace(message, annotations=changed.annotations)


def planted(message: RemoteMessage, what: str) -> RemoteMessage:
    """What the target gets in place of the source's message."""
    match what:
        case "number":
            return annotated(message, sequence_number=Long((message.sequence_number or 0) + 1))
        case "state":
            return annotated(message, message_state=Int(1))
        case "byte":
            return replace(message, body=message.body[:-1] + b"!")
        case "count":
            fields = [b"\x40", b"\x40", b"\x40", b"\x40", encode_uint(1)]
            header = sections.descriptor(sections.HEADER) + encode_list(fields)
            return replace(message, header=header)
    return message


@pytest.mark.parametrize("what", PLANTED)
def test_verify_finds_a_planted_difference_and_no_other(
    bridges: tuple[Bridge, Bridge], migrate: Commands, what: str
) -> None:
    """Behind a run that was all the same: in one message, or in one state."""
    source, target = bridges
    path = f"planted-{what}"
    with client_of(source) as client:
        send(client, path, ServiceBusMessage("first", session_id="s1"))
    set_states(source, path, {"s1": b"one", "s2": b"two"})
    assert migrate.run(path).code == 0
    assert migrate.verify(path).code == 0
    with client_of(source) as client:
        send(client, path, ServiceBusMessage("second", session_id="s3"))
    set_states(source, path, {"s3": b"three"})

    async def plant(namespace: RemoteNamespace) -> None:
        management = namespace.management_of(path)
        await management.hold(RUN)
        sender = await namespace.sender(path, import_run=RUN)
        await sender.send([planted(found, what)])
        state = b"threE" if what == "session" else b"three"
        await management.import_session_state(RUN, "s3", state)
        await management.release(RUN)

    message = at(source, lambda namespace: last_message(namespace.management_of(path)))
    found = imported(CopyPlace(path=path, has_sessions=True), message)
    at(target, plant)
    number = message.sequence_number
    said = migrate.verify(path)
    rows = [each for each in said.rows if each["part"] in ("difference", "session")]
    if what == "nothing":
        assert (said.code, rows) == (0, [])
        return
    assert said.code == 3
    if what == "session":
        (row,) = rows
        assert (row["session_id"], row["is_at"]) == ("s3", ["source", "target"])
    elif what == "number":
        shown = [(row["number"], row["is_at"]) for row in rows]
        assert shown == [(number, ["source"]), (number + 1, ["target"])]
    else:
        (row,) = rows
        assert (row["number"], row["is_at"]) == (number, ["source", "target"])
        part = {"state": "state", "byte": "body", "count": "delivery_count"}[what]
        assert part in row["differs"]
        assert what == "state" or row["differs"] == [part]
