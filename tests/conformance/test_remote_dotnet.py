"""Beside .NET's SDK: what the remote client writes otherwise, of the same calls to one server.

Where they differ, .NET differs from the SDKs for Python or JavaScript, too, or the field is the
client's own, as its name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.wire.amqp10.message import BATCH_FORMAT, batch_messages
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import Attach
from bridge.wire.amqp10.types import Array, Int, Timestamp
from bridge.wire.amqp10.writing import encode
from tests.acceptance.driver import dotnet_program
from tests.bench.server import connection_string
from tests.conformance.remote import ONCE, remote
from tests.conformance.test_remote_sdk import (
    AT_MS,
    OK,
    PATIENCE_S,
    attaches,
    differences,
    session_of,
)
from tests.fixtures.scripted_server import ScriptedServer, scripted_server

pytestmark = pytest.mark.sdks

REPLIES: dict[str, Any] = {
    "com.microsoft:peek-message": lambda body: ({"statusCode": Int(204)}, None),
    "com.microsoft:schedule-message": lambda body: (OK, {"sequence-numbers": Array("long", (7,))}),
    "com.microsoft:cancel-scheduled-message": lambda body: (OK, {}),
    "com.microsoft:get-session-state": lambda body: (OK, {"session-state": None}),
    "com.microsoft:renew-session-lock": lambda body: (OK, {"expiration": Timestamp(2**41)}),
}
OWN = {"name", "handle", "source", "target", "max_message_size"}
"""Of an attach: the client's own names, the largest message that it takes, and the addresses, which
are looked at by themselves.
"""


@dataclass(frozen=True)
class Pair:
    """What came of the same calls: to one server from .NET, to another from this client."""

    theirs: ScriptedServer
    ours: ScriptedServer

    def attaches(self, entity: str, role: bool) -> tuple[Attach, Attach]:
        """Return both attaches of an entity and a direction."""
        return attaches(self.theirs, entity, role), attaches(self.ours, entity, role)

    def requests(self, operation: str) -> tuple[Any, Any]:
        """Return both requests of an operation."""
        one, other = [
            [each for each in server.requests if each.application_properties["operation"] == name]
            for server in (self.theirs, self.ours)
            for name in [operation]
        ]
        return one[0], other[0]


def message(number: str, **annotations: Any) -> RemoteMessage:
    """Return what the program sends."""
    properties = MessageProperties(message_id=number, group_id="S")
    return RemoteMessage.of(data=b"m", properties=properties, annotations=annotations or None)


async def use(namespace: RemoteNamespace) -> None:
    """Do what the program does."""
    sender = await namespace.sender("send")
    await sender.send([message("0")])
    await sender.send([message("1"), message("2")])
    await (await namespace.receiver("lock")).receive(1, 0.1)
    await (await namespace.receiver("delete", "receive-and-delete")).receive(1, 0.1)
    named = await namespace.session_receiver("named", "A")
    await named.state()
    await named.renew()
    await named.close()
    await (await namespace.session_receiver("next", max_wait_s=60)).close()
    management = await namespace.management("manage")
    await management.peek(5, 3)
    later = message("3", **{"x-opt-scheduled-enqueue-time": Timestamp(AT_MS)})
    await management.schedule([later])
    await management.cancel([7])


@pytest.fixture(scope="module")
def pair() -> Pair:
    """Both servers, after their clients' calls."""

    async def run() -> Pair:
        program = dotnet_program("wire")
        async with scripted_server() as theirs, scripted_server() as ours:
            theirs.replies = ours.replies = REPLIES
            process = await asyncio.create_subprocess_exec(
                *program, connection_string(str(theirs.port)), stderr=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(PATIENCE_S):
                _, said = await process.communicate()
            assert process.returncode == 0, said.decode()
            async with remote(ours.port, patience=ONCE) as namespace:
                await use(namespace)
            return Pair(theirs, ours)

    return asyncio.run(run())


def test_open(pair: Pair) -> None:
    """The names of the client, how often it wants to hear, and how many sessions it takes."""
    (its,), (mine,) = pair.theirs.opens, pair.ours.opens
    assert differences(its, mine) <= {
        "container_id", "idle_time_out", "properties", "channel_max", "max_frame_size",
    }  # fmt: skip
    assert its.hostname == mine.hostname == "localhost"
    assert mine.channel_max >= its.channel_max


@pytest.mark.parametrize(
    ("entity", "receives", "others"),
    [
        # It asks for a mixed settle mode, with which senders choose for each message; this client
        # asks for the one that it uses, as Python's does.
        ("send", False, {"snd_settle_mode", "rcv_settle_mode", "properties"}),
        ("lock", True, {"snd_settle_mode", "properties"}),
        ("delete", True, {"properties"}),
        ("named", True, {"snd_settle_mode", "properties"}),
        ("next", True, {"snd_settle_mode", "properties"}),
    ],
)
def test_attaches_of_entities(pair: Pair, entity: str, receives: bool, others: set[str]) -> None:
    """Of a receiver the second settle mode where messages are locked, as .NET's."""
    its, mine = pair.attaches(entity, receives)
    assert differences(its, mine) <= OWN | others
    if receives:
        assert its.rcv_settle_mode == mine.rcv_settle_mode == (entity != "delete")
        assert dict(its.source.filter or {}) == dict(mine.source.filter or {})
        assert (its.source.address, mine.source.address) == (f"/{entity}", entity)
        assert differences(its.source, mine.source) <= {"address", "expiry_policy", "filter"}
    else:
        assert (its.target.address, mine.target.address) == (f"/{entity}", entity)


def test_the_next_session_is_asked_for_with_a_time(pair: Pair) -> None:
    """.NET's is a little shorter than its own; the type is the same, and the filter's bytes."""
    its, mine = pair.attaches("next", True)
    name = "com.microsoft:timeout"
    assert 0 <= mine.properties[name] - its.properties[name] < 5_000
    assert type(its.properties[name]) is type(mine.properties[name])
    assert encode(its.source.filter) == encode(mine.source.filter)


def test_messages_and_batches_are_the_same_bytes(pair: Pair) -> None:
    """A single one wholly; of a batch each part, and the session id on the whole."""
    theirs, ours = pair.theirs, pair.ours
    assert theirs.formats == ours.formats == [0, BATCH_FORMAT]
    assert RemoteMessage.read(theirs.messages[0]) == RemoteMessage.read(ours.messages[0])
    parts = [
        [RemoteMessage.read(each) for each in batch_messages(server.messages[1])]
        for server in (theirs, ours)
    ]
    assert parts[0] == parts[1]
    assert session_of(theirs.messages[1]) == session_of(ours.messages[1]) == "S"


def test_tokens(pair: Pair) -> None:
    """The same properties and types; .NET's audience says amqp, its signature is for the host."""
    theirs, ours = pair.theirs.token_fields, pair.ours.token_fields
    assert set(theirs) == set(ours)
    assert theirs["type"] == ours["type"] == "servicebus.windows.net:sastoken"
    assert type(theirs["expiration"]) is type(ours["expiration"])
    for server in (pair.theirs, pair.ours):
        names = [part.partition("=")[0] for part in server.tokens[0].split(" ")[1].split("&")]
        assert names == ["sr", "sig", "se", "skn"]


@pytest.mark.parametrize(
    "operation",
    ["peek-message", "cancel-scheduled-message", "get-session-state", "renew-session-lock"],
)
def test_requests_have_the_same_bodies(pair: Pair, operation: str) -> None:
    """As bytes. .NET tells its own tracking id, and the link of a session; no entity type."""
    its, mine = pair.requests(f"com.microsoft:{operation}")
    assert set(its.value) == set(mine.value)
    for key in its.value:
        assert encode(its.value[key]) == encode(mine.value[key]), key
    left, right = its.application_properties, mine.application_properties
    names = {"com.microsoft:tracking-id", "associated-link-name", "type"}
    assert {each for each in {*left, *right} if left.get(each) != right.get(each)} <= names


def test_a_schedule(pair: Pair) -> None:
    """One entry, with the message's id and session, and the same message."""
    its, mine = pair.requests("com.microsoft:schedule-message")
    (left,), (right,) = its.value["messages"], mine.value["messages"]
    assert {**left, "message": b""} == {**right, "message": b""}
    assert RemoteMessage.read(left["message"]) == RemoteMessage.read(right["message"])
