"""Many calls at once on a server that does anything: each one knows what became of its message."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bridge.remote.connection import RemoteConnection
from bridge.remote.errors import RemoteError
from bridge.remote.outcomes import Abandon, Complete, DeadLetter, Release
from bridge.remote.patience import Patience
from bridge.remote.requests import RequestLinks
from bridge.wire.amqp10.message import AmqpMessage, decode_message, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import Accepted, Released
from bridge.wire.amqp10.scalars import Int
from tests.conformance.remote import QUICK, WAIT_S, plain_address, remote, text
from tests.fixtures.examples import examples
from tests.fixtures.scripted_server import ScriptedServer, rejected, scripted_server
from tests.fixtures.waiting import until

FATES = (
    *("accept", "accept", "accept", "refuse", "release", "busy", "nothing", "detach", "cut"),
    *("take and detach", "take and cut"),
)
"""What the server does with the next message; of those that are accepted most."""


async def no_wait(seconds: float) -> None:
    """Wait one turn: pauses are another test's."""
    await asyncio.sleep(0)


def fate_of(server: ScriptedServer, fate: str) -> Any:
    """Return an outcome of the scripted server's."""

    def take(connection: Any, event: Any) -> None:
        server.messages.append(event.payload)
        if fate == "take and cut":
            connection.transport.abort()
        else:
            event.link.detach("amqp:link:detach-forced", "idle")

    match fate:
        case "take and detach" | "take and cut":
            return take
        case "accept":
            return Accepted()
        case "refuse":
            return rejected("amqp:not-allowed", "refused")
        case "release":
            return Released()
        case "busy":
            return rejected("com.microsoft:server-busy", "50009")
        case "detach":
            return lambda connection, event: event.link.detach("amqp:link:detach-forced", "idle")
        case "cut":
            return lambda connection, event: connection.transport.abort()
    return lambda connection, event: None


@given(
    fates=st.lists(st.sampled_from(FATES), max_size=25),
    count=st.integers(1, 20),
    delays=st.lists(st.integers(0, 3), min_size=20, max_size=20),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
async def test_each_send_knows_what_became_of_its_message(
    fates: list[str], count: int, delays: list[int]
) -> None:
    """Whatever crosses on the way.

    A send that returns: its message is there, once. One that fails without doubt: it is not there.
    One that is in doubt: it may be, once. None is made again after that, and none hangs. Of the
    sessions that were begun, the sender's and that of its tokens are left.
    """
    async with (
        scripted_server() as server,
        remote(server.port, patience=Patience(total_s=WAIT_S, sleep=no_wait)) as namespace,
    ):
        sender = await namespace.sender("q")
        server.outcomes = [fate_of(server, each) for each in fates]

        async def send(number: int) -> RemoteError | None:
            for _ in range(delays[number]):
                await asyncio.sleep(0)
            try:
                await sender.send([text(f"{number:03d}")], within_s=1.0)
            except RemoteError as error:
                return error
            return None

        async with asyncio.timeout(WAIT_S):
            results = await asyncio.gather(*(send(each) for each in range(count)))
        there = Counter(each[-3:].decode() for each in server.messages)
        assert not sender._waiting
        for number, error in enumerate(results):
            name = f"{number:03d}"
            if error is None:
                assert there[name] == 1, name
            elif error.in_doubt:
                assert there[name] <= 1, name
            else:
                assert there[name] == 0, (name, error)
        server.outcomes.clear()
        await sender.send([text("end")])
        await until(lambda: [len(each.endpoint.sessions) for each in server.connections] == [2])


OUTCOMES = (Complete(), Abandon(), DeadLetter("r"), Release())
ANSWERS = ("confirm", "confirm", "confirm", "lost", "nothing", "cut")


@given(
    answers=st.lists(st.sampled_from(ANSWERS), max_size=20),
    count=st.integers(1, 15),
    at_once=st.integers(1, 15),
    outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=15, max_size=15),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
async def test_each_settlement_knows_what_became_of_it(
    answers: list[str], count: int, at_once: int, outcomes: list[Any]
) -> None:
    """Each message is given out once, and settled as asked, refused, or in doubt; none hangs."""
    async with scripted_server() as server, remote(server.port, patience=QUICK) as namespace:
        receiver = await namespace.receiver("q", credit=count)
        await until(lambda: server.credit("q") == count)
        tags = [server.deliver("q", text(f"{each:03d}").encode()) for each in range(count)]
        found: list[Any] = []
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                found += await receiver.receive(at_once, WAIT_S)
        assert [each.delivery_tag for each in found] == tags
        assert [each.message.data for each in found] == [b"%03d" % each for each in range(count)]
        await asyncio.sleep(0)
        given_: list[str] = []

        def answer(outcome: Any) -> Any:
            fate = answers[len(given_)] if len(given_) < len(answers) else "confirm"
            given_.append(fate)
            if fate == "cut":
                server.cut()
                return None
            if fate == "lost":
                return rejected("com.microsoft:message-lock-lost", "lost")
            return outcome if fate == "confirm" else None

        server.answer = answer

        async def settle(number: int) -> RemoteError | None:
            try:
                await receiver.settle(found[number], outcomes[number], within_s=1.0)
            except RemoteError as error:
                return error
            return None

        async with asyncio.timeout(WAIT_S):
            results = await asyncio.gather(*(settle(each) for each in range(count)))
        told = Counter(tag for tag, _, _ in server.settled)
        assert set(told.values()) <= {1}
        fates = dict(
            zip([tag for tag, _, alone in server.settled if not alone], given_, strict=False)
        )
        for number, error in enumerate(results):
            fate = fates.get(tags[number])
            if isinstance(outcomes[number], Release):
                assert error is None
            elif fate == "confirm" and error is None:
                continue
            elif fate == "lost" and error is not None and not error.in_doubt:
                assert error.condition == "com.microsoft:message-lock-lost"
            else:
                assert error is not None, (number, fate)
                assert error.in_doubt, (number, fate, error)


REQUEST_FATES = (
    *("reply", "reply", "reply", "late", "late", "refuse", "nothing", "twice", "stranger", "busy"),
    *("unreadable", "detach requests", "detach replies", "cut", "starve"),
)
"""What the server does with the next request; "late": it replies behind the next one."""


class Node:
    """A `$management` that does with each request what it is told.

    Attributes:
        taken: the numbers of the requests that were carried out.
    """

    def __init__(self, server: ScriptedServer, fates: list[str]) -> None:
        self.taken: list[int] = []
        self._server = server
        self._fates = fates
        self._late: list[AmqpMessage] = []

    def take(self, connection: Any, event: Any) -> None:
        """Take a request."""
        link, request = event.link, decode_message(event.payload)
        fate = self._fates.pop(0) if self._fates else "reply"
        if fate in ("refuse", "busy"):
            condition = "amqp:not-allowed" if fate == "refuse" else "com.microsoft:server-busy"
            link.settle(event.delivery_id, rejected(condition, "by the test"))
            return
        self.taken.append(request.value)
        link.settle(event.delivery_id, Accepted())
        correlation = MessageProperties(correlation_id=request.properties.message_id)
        reply = AmqpMessage(correlation, {"statusCode": Int(200)}, request.value)
        match fate:
            case "late":
                self._late.append(reply)
                return
            case "reply" | "starve":
                self._reply(reply)
            case "twice":
                self._reply(reply, reply)
            case "stranger":
                nobody = MessageProperties(correlation_id="nobody")
                self._reply(AmqpMessage(nobody, {"statusCode": Int(200)}, -1), reply)
            case "unreadable":
                self._outgoing.send(self._server._tag(), b"\xff\xff", is_settled=True)
            case "detach requests":
                link.detach("amqp:link:detach-forced", "idle")
            case "detach replies":
                self._outgoing.detach("amqp:link:detach-forced", "idle")
            case "cut":
                connection.transport.abort()
        if fate == "starve":
            link.grant(0)
        if fate not in ("cut", "detach replies"):
            self._reply(*self._late[::-1])
            self._late.clear()

    @property
    def _outgoing(self) -> Any:
        return self._server.link_of["q/$management out"]

    def _reply(self, *replies: AmqpMessage) -> None:
        for each in replies:
            self._outgoing.send(self._server._tag(), encode_message(each), is_settled=True)


@given(
    fates=st.lists(st.sampled_from(REQUEST_FATES), max_size=20),
    count=st.integers(1, 15),
    delays=st.lists(st.integers(0, 3), min_size=15, max_size=15),
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@example(fates=["late", "late", "reply"], count=3, delays=[0] * 15)
@example(fates=["nothing", "unreadable", "late"], count=4, delays=[0] * 15)
async def test_each_request_has_its_own_reply_or_knows_whether_it_was_carried_out(
    fates: list[str], count: int, delays: list[int]
) -> None:
    """Replies come in any order, twice, to nobody, unreadable, or not at all.

    A request that returns has the reply to itself, and was carried out once. One that fails without
    doubt was not carried out; one in doubt at most once. None is made again, and none hangs.
    """
    async with scripted_server() as server:
        node = Node(server, list(fates))
        server.take_request = node.take
        connection = RemoteConnection(plain_address(server.port))
        await connection.open()
        links = RequestLinks(connection, "q/$management")
        await links.open()

        async def ask(number: int) -> Any:
            for _ in range(delays[number]):
                await asyncio.sleep(0)
            try:
                return (await links.ask(AmqpMessage(value=Int(number)), within_s=1.0)).value
            except RemoteError as error:
                return error

        async with asyncio.timeout(WAIT_S):
            results = await asyncio.gather(*(ask(each) for each in range(count)))
            await links.close()
            await connection.close()
        there = Counter(node.taken)
        assert not links._waiting
        for number, result in enumerate(results):
            if not isinstance(result, RemoteError):
                assert (result, there[number]) == (number, 1)
            elif result.in_doubt:
                assert there[number] <= 1, number
            else:
                assert there[number] == 0, (number, result)
