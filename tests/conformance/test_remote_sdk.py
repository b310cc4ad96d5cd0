"""What the remote client writes is what Azure's own SDK writes, of the same calls to one server."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.wire.amqp10.composite import decode_composite
from bridge.wire.amqp10.message import BATCH_FORMAT, batch_messages
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import Attach, Open
from bridge.wire.amqp10.types import Array, Int, Timestamp
from bridge.wire.amqp10.writing import encode
from tests.bench.server import connection_string
from tests.conformance.remote import ONCE, remote
from tests.fixtures.scripted_server import ScriptedServer, scripted_server

PATIENCE_S = 120.0
OK = {"statusCode": Int(200)}
AT = datetime.datetime(2040, 1, 1, tzinfo=datetime.UTC)
AT_MS = int(AT.timestamp() * 1000)


def session_of(message: bytes) -> str | None:
    """Return the session id in a batch's own properties."""
    at = message.index(b"\x00\x53\x73")
    properties, _ = decode_composite(message, at)
    found: str | None = properties.group_id
    return found


async def both(
    theirs: Callable[[ServiceBusClient], object],
    ours: Callable[[RemoteNamespace], Any],
) -> tuple[ScriptedServer, ScriptedServer]:
    """Let the SDK and the remote client do the same, each to a server; return the servers."""
    servers = []
    for is_ours in (False, True):
        async with scripted_server() as server:
            server.replies = {
                "com.microsoft:peek-message": lambda body: ({"statusCode": Int(204)}, None),
                "com.microsoft:schedule-message": lambda body: (
                    OK,
                    {"sequence-numbers": Array("long", (7,))},
                ),
                "com.microsoft:cancel-scheduled-message": lambda body: (OK, {}),
                "com.microsoft:get-session-state": lambda body: (OK, {"session-state": None}),
                "com.microsoft:renew-session-lock": lambda body: (
                    OK,
                    {"expiration": Timestamp(2**41)},
                ),
            }
            if is_ours:
                async with remote(server.port, patience=ONCE) as namespace:
                    await ours(namespace)
            else:

                def use(port: int) -> None:
                    text = connection_string(str(port))
                    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
                        theirs(client)

                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.to_thread(use, server.port)
            servers.append(server)
    return servers[0], servers[1]


def differences(theirs: Any, ours: Any) -> set[str]:
    """Return the names of the fields in which two performatives differ."""
    names = [each.name for each in fields(theirs)]
    return {each for each in names if getattr(theirs, each) != getattr(ours, each)}


def attaches(server: ScriptedServer, address: str, role: bool) -> Attach:
    """Return the first attach of an address and a direction."""
    for each in server.asked:
        terminus = each.source if role else each.target
        if each.role is role and str(terminus.address).endswith(address):
            return each
    raise AssertionError(f"no attach of {address}")


def send_theirs(client: ServiceBusClient) -> None:
    """Send one message, then a batch."""
    with client.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage(b"m", session_id="S", partition_key="S"))
        sender.send_messages(
            [ServiceBusMessage(b"1", session_id="S"), ServiceBusMessage(b"2", session_id="S")]
        )


def message(body: bytes, number: str) -> RemoteMessage:
    """Return the same as of the remote client's."""
    return RemoteMessage.of(
        data=body, properties=MessageProperties(message_id=number, group_id="S")
    )


async def send_ours(namespace: RemoteNamespace) -> None:
    """The same."""
    sender = await namespace.sender("q")
    await sender.send([message(b"m", "0")])
    await sender.send([message(b"1", "1"), message(b"2", "2")])


async def test_open_and_a_sender() -> None:
    """The same but for what names the client, and for the time-out, which JavaScript asks for."""
    theirs, ours = await both(send_theirs, send_ours)

    (their_open, our_open) = theirs.opens[0], ours.opens[0]
    assert isinstance(their_open, Open)
    assert differences(their_open, our_open) == {"container_id", "idle_time_out", "properties"}
    assert our_open.idle_time_out == 60_000
    mine, its = attaches(ours, "q", False), attaches(theirs, "q", False)
    assert differences(its, mine) <= {"name", "handle", "source", "target"}
    assert mine.source.address == f"sender-link-{mine.name}"
    assert its.source.address == f"sender-link-{its.name}"
    assert differences(its.source, mine.source) == differences(its.target, mine.target)
    assert differences(its.source, mine.source) == {"address"}
    assert mine.target.address == "q"  # as JavaScript writes it; Python puts scheme and host before


async def test_batches_have_one_form() -> None:
    """Message-format, a Data section a message, and the first one's session id for all."""
    theirs, ours = await both(send_theirs, send_ours)

    assert theirs.formats == ours.formats == [0, BATCH_FORMAT]
    for server in (theirs, ours):
        parts = [RemoteMessage.read(each) for each in batch_messages(server.messages[1])]
        assert [each.data for each in parts] == [b"1", b"2"]
        assert session_of(server.messages[1]) == "S"


async def test_tokens_are_put_alike() -> None:
    """The same properties, for the same audience; the type is that of JavaScript and .NET."""
    theirs, ours = await both(send_theirs, send_ours)

    assert set(theirs.token_fields) == set(ours.token_fields)
    assert {**theirs.token_fields, "type": "", "expiration": 0, "name": ""} == {
        **ours.token_fields,
        "type": "",
        "expiration": 0,
        "name": "",
    }
    assert ours.token_fields["name"] == f"sb://localhost:{ours.port}/q"
    assert theirs.token_fields["name"] == f"sb://localhost:{theirs.port}/q"
    assert type(theirs.token_fields["expiration"]) is type(ours.token_fields["expiration"])
    for server in (theirs, ours):
        names = [part.partition("=")[0] for part in server.tokens[0].split(" ")[1].split("&")]
        assert names == ["sr", "sig", "se", "skn"]
        assert f"sr=sb%3A%2F%2Flocalhost%3A{server.port}%2Fq" in server.tokens[0]
    mine, its = attaches(ours, "$cbs", True), attaches(theirs, "$cbs", True)
    assert differences(its, mine) <= {"name", "handle", "target", "max_message_size"}
    mine, its = attaches(ours, "$cbs", False), attaches(theirs, "$cbs", False)
    assert differences(its, mine) <= {"name", "handle", "source", "max_message_size"}


@pytest.mark.parametrize("mode", ["peek-lock", "receive-and-delete"])
async def test_a_receiver(mode: Any) -> None:
    """The same settle modes and properties."""
    name = {"peek-lock": "peeklock", "receive-and-delete": "receiveanddelete"}[mode]

    def receive(client: ServiceBusClient) -> None:
        with client.get_queue_receiver("q", receive_mode=name) as receiver:
            receiver.receive_messages(max_message_count=1, max_wait_time=0.1)

    async def take(namespace: RemoteNamespace) -> None:
        await (await namespace.receiver("q", mode)).receive(1, 0.1)

    theirs, ours = await both(receive, take)

    mine, its = attaches(ours, "q", True), attaches(theirs, "q", True)
    expected = {"name", "handle", "source", "target", "max_message_size", "properties"}
    assert differences(its, mine) <= expected
    assert differences(its.source, mine.source) == {"address"}
    assert mine.source.address == "q"
    assert mine.target.address == f"receiver-link-{mine.name}"
    assert set(mine.properties) == set(its.properties) == {"com.microsoft:receiver-name"}


@pytest.mark.parametrize("session_id", [None, "A"])
async def test_a_session_receiver(session_id: str | None) -> None:
    """The same filter, and the same wait for the next one."""
    from azure.servicebus import NEXT_AVAILABLE_SESSION

    def receive(client: ServiceBusClient) -> None:
        wanted = NEXT_AVAILABLE_SESSION if session_id is None else session_id
        with client.get_queue_receiver("q", session_id=wanted, max_wait_time=5) as receiver:
            receiver.session.get_state()
            receiver.session.renew_lock()

    async def take(namespace: RemoteNamespace) -> None:
        held = await namespace.session_receiver("q", session_id, max_wait_s=5)
        await held.state()
        assert await held.renew() == 2**41

    theirs, ours = await both(receive, take)

    mine, its = attaches(ours, "q", True), attaches(theirs, "q", True)
    assert dict(mine.source.filter) == dict(its.source.filter)
    assert encode(mine.source.filter) == encode(its.source.filter)
    more = set() if session_id else {"com.microsoft:timeout"}
    assert set(mine.properties) == {"com.microsoft:receiver-name"} | more
    if session_id is None:
        assert mine.properties["com.microsoft:timeout"] == 5_000
        assert type(mine.properties["com.microsoft:timeout"]) is type(
            its.properties["com.microsoft:timeout"]
        )
    check_requests(theirs, ours, 2)


def check_requests(theirs: ScriptedServer, ours: ScriptedServer, count: int) -> None:
    """The last requests to `$management` have the same operations and the same bodies, as bytes."""
    pairs = list(zip(theirs.requests[-count:], ours.requests[-count:], strict=True))
    assert len(pairs) == count
    for its, mine in pairs:
        left, right = its.application_properties, mine.application_properties
        assert {**left, "associated-link-name": None} == {**right, "associated-link-name": None}
        assert set(its.value) == set(mine.value)
        for key in its.value:
            if key != "messages":
                assert encode(its.value[key]) == encode(mine.value[key]), key


async def test_requests_to_management() -> None:
    """Peek, schedule and cancel: the same names, the same types."""

    def ask(client: ServiceBusClient) -> None:
        with client.get_queue_receiver("q") as receiver:
            receiver.peek_messages(max_message_count=3, sequence_number=5)
        with client.get_queue_sender("q") as sender:
            sender.schedule_messages(ServiceBusMessage(b"m", session_id="S"), AT)
            sender.cancel_scheduled_messages([7])

    async def request(namespace: RemoteNamespace) -> None:
        management = await namespace.management("q")
        await management.peek(5, 3)
        later = RemoteMessage.of(
            data=b"m",
            properties=MessageProperties(message_id="1", group_id="S"),
            annotations={"x-opt-scheduled-enqueue-time": AT_MS, "x-opt-partition-key": "S"},
        )
        assert await management.schedule([later]) == [7]
        await management.cancel([7])

    theirs, ours = await both(ask, request)

    asked = [
        [
            each
            for each in server.requests
            if each.application_properties["operation"] != "put-token"
        ]
        for server in (theirs, ours)
    ]
    for server, requests in zip((theirs, ours), asked, strict=True):
        server.requests = requests
    check_requests(theirs, ours, 3)
    (its,), (mine,) = (each[1].value["messages"] for each in asked)
    assert set(its) - {"partition-key"} <= set(mine)
    for entry in (its, mine):
        scheduled = RemoteMessage.read(entry["message"])
        assert scheduled.scheduled_enqueue_time_ms == AT_MS
        assert scheduled.session_id == "S"
