"""What the gateway owes to clients that do not behave, and to operators."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import pytest

from bridge.gateway.nodes.own_operations import LOCKED_MAX
from bridge.machine.amqp10.limits import Limits
from bridge.machine.inbox.scheduled_moves import MOVED_MAX
from bridge.message.envelopes import Outgoing
from bridge.model.entity import AuthorizationRule, Queue, Right
from bridge.model.errors import OperationTimeout
from bridge.model.name import EntityPath
from bridge.wire.amqp10.message import BATCH_FORMAT
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    Flow,
    Modified,
    Source,
    Transfer,
)
from bridge.wire.amqp10.types import Array, Symbol
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.client import Client, sas
from tests.conformance.served import (
    QUEUE,
    client,
    client_tls,
    gateway,
    message,
    queue_of,
    server_tls,
)
from tests.fixtures.waiting import until

# -- rights


async def test_nobody_without_a_token() -> None:
    """A connection that puts no valid token in time is closed, in so many words."""
    async with (
        gateway(authorization_s=60, refused_s=0.2) as (_, port),
        client(port, authorised=False) as peer,
    ):
        assert await peer.put_token(sas(key="wrong")) == 401
        close = await peer.next(Close)

        assert close.error.condition == "amqp:unauthorized-access"
        await peer.closed()


async def test_a_refused_token_gives_time_for_another() -> None:
    """The JavaScript SDK tries again after 30 s, and ends its process without the connection."""
    async with (
        gateway(authorization_s=0.2, refused_s=60) as (_, port),
        client(port, authorised=False) as peer,
    ):
        assert await peer.put_token(sas(key="wrong")) == 401
        await asyncio.sleep(0.5)
        assert await peer.put_token(sas()) == 202


async def test_refused_tokens_give_no_time_for_ever() -> None:
    """The fourth one, which is the last try of an SDK, gives none."""
    async with (
        gateway(authorization_s=60, refused_s=2) as (_, port),
        client(port, authorised=False) as peer,
    ):
        begun_s = time.monotonic()
        while not any(isinstance(each, Close) for each, _ in peer.frames):
            with contextlib.suppress(AssertionError):
                assert await peer.put_token(sas(key="wrong")) == 401
        await peer.closed()
        assert time.monotonic() - begun_s < 60


async def test_a_second_pair_of_links_to_cbs() -> None:
    """Each pair is answered on its own links, before and after the other; tokens of both count."""
    async with gateway() as (_, port), client(port, authorised=False) as peer:
        assert await peer.put_token(sas()) == 202
        assert await peer.put_token(sas(), f"sb://localhost/{QUEUE.name}", pair=1) == 202
        assert await peer.put_token(sas(key="wrong")) == 401
        assert await peer.put_token(sas(), pair=1) == 202
        peer.attach(7, QUEUE.name, role=False)
        assert (await peer.next(Attach, handle=7)).target is not None


async def test_no_right() -> None:
    """A rule that listens may not send, by link or by request; the connection goes on."""
    rule = AuthorizationRule(name="reader", primary_key="k", rights=frozenset({Right.LISTEN}))
    async with gateway(rule) as (_, port), client(port, authorised=False) as peer:
        assert await peer.put_token(sas("q", rule="reader", key="k"), "sb://localhost/q") == 202
        peer.attach(7, "q", role=False)
        detach = await peer.next(Detach, handle=7)
        reply = await peer.manage("q", "com.microsoft:cancel-scheduled-message", {})

        assert detach.error.condition == "amqp:unauthorized-access"
        assert "'Send' claim(s) are required" in detach.error.description
        assert reply.application_properties["statusCode"] == 401
        peer.attach(8, "amqps://localhost:5671/Q", role=True)
        assert (await peer.next(Attach, handle=8)).source == Source("amqps://localhost:5671/Q")


async def test_token_expires() -> None:
    """When a token ends its links are taken down; the connection and `$cbs` stay."""
    async with gateway() as (_, port), client(port, authorised=False) as peer:
        assert await peer.put_token(sas(expires_s=time.time() + 2)) == 202
        peer.attach(7, "q", role=False)
        await peer.next(Attach, handle=7)
        detach = await peer.next(Detach, handle=7)
        assert detach.error.condition == "amqp:unauthorized-access"
        assert "ExpiredToken" in detach.error.description
        peer.send(Detach(7, True))
        assert await peer.put_token(sas()) == 202
        peer.attach(7, "q", role=False)
        await peer.next(Attach, handle=7)


async def test_renewed_token() -> None:
    """A token that is put again in time keeps the links."""
    async with gateway() as (served, port), client(port, authorised=False) as peer:
        expires_s = int(time.time()) + 2
        assert await peer.put_token(sas(expires_s=expires_s)) == 202
        peer.attach(7, "q", role=False)
        await peer.next(Attach, handle=7)
        assert await peer.put_token(sas()) == 202
        await asyncio.sleep(expires_s - time.time() + 0.2)
        peer.transfer(7, message(b"x"))
        assert (await peer.next(Disposition, first=3 - 1)).state == Accepted()
        assert len(queue_of(served).active) == 1


async def test_unknown_entity() -> None:
    """404 at `$cbs`; the Python SDK shows nothing of that, so its attach is refused, by name."""
    product = "azsdk-python-servicebus"
    async with gateway() as (_, port):
        async with client(port) as other:
            assert await other.put_token(sas("nope"), "sb://localhost/nope", kind="jwt") == 404
        async with client(port, product=product) as peer:
            assert await peer.put_token(sas("nope"), "sb://localhost/nope", kind="jwt") == 202
            await _is_refused_by_name(peer)


async def _is_refused_by_name(peer: Client) -> None:
    peer.attach(7, "nope", role=False)
    attach, detach = await peer.next(Attach, handle=7), await peer.next(Detach, handle=7)

    assert attach.target is None
    assert detach.error.condition == "amqp:not-found"
    assert "The messaging entity 'sb://localhost/nope' could not be found" in (
        detach.error.description
    )


# -- what is refused by name


@pytest.mark.parametrize("operation", ["com.microsoft:no-such-thing", "no-such-thing"])
async def test_unknown_operation(operation: str) -> None:
    """An operation that is not there is answered with 501 and its name."""
    async with gateway() as (_, port), client(port) as peer:
        reply = await peer.manage("q", operation, {})

        assert reply.application_properties["statusCode"] == 501
        assert type(reply.application_properties["errorCondition"]) is Symbol
        assert operation in reply.application_properties["statusDescription"]


async def test_sessions() -> None:
    """A session receiver of a plain queue, and a plain one of a session queue: Azure's words."""
    session = {Symbol("com.microsoft:session-filter"): None}
    async with gateway() as (_, port), client(port) as peer:
        peer.attach(7, "q", role=True, source=Source("q", filter=session))
        detach = await peer.next(Detach, handle=7)
        assert detach.error.condition == "amqp:not-allowed"
        assert "does not require sessions" in detach.error.description
    queue = Queue(name="q", requires_session=True)
    async with gateway(queue=queue) as (_, port), client(port) as peer:
        peer.attach(7, "q", role=True)
        detach = await peer.next(Detach, handle=7)
        assert "create a non-sessionful message receiver" in detach.error.description
        peer.attach(8, "q/$DeadLetterQueue", role=True)
        assert (await peer.next(Attach, handle=8)).source is not None


async def test_send_to_the_dead_letter_queue() -> None:
    """A sub-queue takes no senders."""
    async with gateway() as (_, port), client(port) as peer:
        peer.attach(7, "q/$DeadLetterQueue", role=False)
        assert (await peer.next(Detach, handle=7)).error.condition == "amqp:not-allowed"


# -- messages that are none


async def test_broken_messages() -> None:
    """Bytes that are no message, or no batch, are rejected; the link goes on."""
    async with gateway() as (_, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        for number, (payload, message_format) in enumerate(
            [(b"junk", 0), (b"", BATCH_FORMAT), (b"\x00\x53\x75\xa0\x09x", BATCH_FORMAT)], start=1
        ):
            peer.transfer(7, payload, message_format=message_format)
            outcome = (await peer.next(Disposition, first=number)).state
            if payload:
                assert outcome.error.condition == "amqp:decode-error"
        peer.transfer(7, message(b"good"))
        assert (await peer.next(Disposition, first=4)).state == Accepted()


TAKE_NUMBERS = ("cancel-scheduled-message", "receive-by-sequence-number")


OWN_CASES: list[tuple[str, str, object]] = [
    ("lock-messages", "numbers", []),
    ("lock-messages", "sequence-numbers", "7"),
    ("lock-messages", "sequence-numbers", [UUID(int=1)]),
    ("lock-messages", "sequence-numbers", [True]),
    ("lock-messages", "sequence-numbers", Array("ulong", (2**63,))),
    ("lock-messages", "sequence-numbers", Array("long", tuple(range(LOCKED_MAX + 1)))),
    ("move-scheduled-messages", "messages", "7"),
    ("move-scheduled-messages", "messages", [{"message": b"", "sequence-number": 1}]),
    ("move-scheduled-messages", "messages", [{"sequence-number": 1}]),
    ("move-scheduled-messages", "messages", [{"message": b"", "sequence-number": "1"}]),
    ("move-scheduled-messages", "messages", [b"message"]),
    ("move-scheduled-messages", "messages", [{}] * (MOVED_MAX + 1)),
    ("release-messages", "lock-tokens", "7"),
    ("release-messages", "lock-tokens", [7]),
    ("release-messages", "tokens", []),
]


async def test_management_arguments() -> None:
    """Requests with arguments of a wrong kind are answered with 400."""
    bodies = {
        "renew-lock": {"lock-tokens": "x"},
        "schedule-message": {"messages": [{"message": b"junk"}]},
        "cancel-scheduled-message": {"sequence-numbers": Array("boolean", (True,))},
        "update-disposition": {
            "disposition-status": "odd",
            "lock-tokens": Array("uuid", (UUID(int=1),)),
        },
    }
    beyond = {"sequence-numbers": Array("ulong", (2**63,))}
    cases = [*bodies.items(), *((each, beyond) for each in TAKE_NUMBERS)]
    async with gateway() as (_, port), client(port) as peer:
        for operation, body in cases:
            reply = await peer.manage("q", f"com.microsoft:{operation}", body)
            assert reply.application_properties["statusCode"] == 400, operation
        for operation, name, value in OWN_CASES:
            reply = await peer.manage("q", f"com.busbridge:{operation}", {name: value})
            assert reply.application_properties["statusCode"] == 400, (operation, value)
        for operation in (
            "com.microsoft:lock-messages",
            "com.busbridge:renew-lock",
            "com.busbridge:",
        ):
            reply = await peer.manage("q", operation, {})
            assert reply.application_properties["statusCode"] == 501, operation
        reply = await peer.manage("q", "com.microsoft:renew-lock", "no map")
        assert reply.application_properties["statusCode"] == 400


async def test_late_settlement() -> None:
    """A lock that is lost is told so, by disposition and by request."""
    async with gateway() as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        peer.transfer(7, message(b"x"))
        peer.attach(8, "q", role=True, snd_settle_mode=0)
        peer.credit(8, 1)
        transfer, _ = await peer.next(Transfer, handle=8)
        token = UUID(bytes_le=transfer.delivery_tag)
        queue_of(served)._on_lock_end(token)
        peer.send(Disposition(True, transfer.delivery_id, None, False, Modified(True)))
        answer = await peer.next(Disposition, role=False)
        assert answer.settled
        assert answer.state.error.condition == "com.microsoft:message-lock-lost"
        reply = await peer.manage(
            "q", "com.microsoft:renew-lock", {"lock-tokens": Array("uuid", (token,))}
        )
        assert reply.application_properties["statusCode"] == 410


# -- bounds


async def test_client_that_stops_reading() -> None:
    """For a client that reads nothing no more is taken than fits its buffers; later it gets all."""
    count, size = 2_000, 20_000
    bounds = {"output_bytes_high": 65_536, "fetch_bytes": 200_000, "send_credit": count}
    async with gateway(**bounds) as (served, port), client(port) as sender:
        sender.attach(7, "q", role=False)
        for _ in range(count):
            sender.transfer(7, message(bytes(size)), settled=True)
        await until(lambda: len(queue_of(served).active) == count)
        reader = await Client.connect(port)
        await reader.open()
        await reader.put_token(sas())
        reader._writer.transport.pause_reading()  # type: ignore[attr-defined]
        reader.attach(8, "q", role=True)
        reader.credit(8, count)
        await until(lambda: any(each.is_choked for each in served.connections))
        await asyncio.sleep(0.1)
        taken = len(queue_of(served).locked)
        assert 0 < taken * size < 8_000_000, taken
        reader._writer.transport.resume_reading()  # type: ignore[attr-defined]
        await reader.until(
            lambda: sum(isinstance(each, Transfer) for each, _ in reader.frames) == count
        )
        assert len(queue_of(served).locked) == count
        await reader.close()


async def test_closed_session_window() -> None:
    """For a client that shuts its session's window no more is taken than a little."""
    count, size = 2_000, 20_000
    bounds = {"output_bytes_high": 65_536, "fetch_bytes": 200_000, "send_credit": count}
    async with gateway(**bounds) as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        for _ in range(count):
            peer.transfer(7, message(bytes(size)), settled=True)
        await until(lambda: len(queue_of(served).active) == count)
        peer.attach(8, "q", role=True)
        peer.credit(8, count, incoming_window=3)
        await peer.next(Transfer, handle=8)
        await asyncio.sleep(0.1)
        assert len(queue_of(served).locked) * size < 1_000_000
        peer.credit(8, count)
        await peer.until(
            lambda: sum(isinstance(each, Transfer) for each, _ in peer.frames) == count - 1
        )


class Stuck(MemoryNamespace):
    """RabbitMQ does not confirm."""

    def __init__(self) -> None:
        super().__init__(QUEUE)
        self.gate = asyncio.Event()
        self.taken_bytes = 0

    async def send(self, path: EntityPath, batch: Sequence[Outgoing]) -> None:
        """Wait until the gate opens."""
        self.taken_bytes += sum(item.size_bytes for item in batch)
        await self.gate.wait()
        await super().send(path, batch)


async def test_unconfirmed_messages_are_bounded() -> None:
    """While RabbitMQ confirms nothing, a client is not read from beyond a bound."""
    namespace, count, size = Stuck(), 300, 100_000
    bound = gateway(namespace=namespace, input_bytes_high=1_000_000)
    async with bound as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        for _ in range(count):
            peer.transfer(7, message(bytes(size)))
        await until(lambda: namespace.taken_bytes > 1_000_000)
        await asyncio.sleep(0.1)
        assert namespace.taken_bytes < 2_000_000
        namespace.gate.set()
        await until(lambda: len(queue_of(served).active) == count)


async def test_unconfirmed_messages_of_all_clients_are_bounded() -> None:
    """They count together; when RabbitMQ has confirmed them, all are read again."""
    namespace, count, size = Stuck(), 20, 50_000
    bound = gateway(namespace=namespace, waiting_bytes_max=500_000)
    async with bound as (served, port), AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(client(port)) for _ in range(5)]
        for peer in peers:
            peer.attach(7, "q", role=False)
            for _ in range(count):
                peer.transfer(7, message(bytes(size)))
        await until(lambda: served.backlog.is_full)
        await asyncio.sleep(0.2)
        assert namespace.taken_bytes < 500_000 + len(peers) * 300_000
        namespace.gate.set()
        await until(lambda: len(queue_of(served).active) == len(peers) * count)
        assert served.backlog.waiting_bytes == 0


async def test_credit_of_senders() -> None:
    """A sender that goes beyond its credit loses its link; its other messages are answered."""
    async with gateway(send_credit=10) as (_, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        assert (await peer.next(Flow, handle=7)).link_credit == 10
        peer.write(b"")
        for _ in range(12):
            peer.transfer(7, message(b"x"))
        detach = await peer.next(Detach, handle=7)
        assert detach.error.condition == "amqp:link:transfer-limit-exceeded"


async def test_credit_is_given_again() -> None:
    """A sender that keeps to its credit gets more as its messages are stored."""
    async with gateway(send_credit=10) as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        flow = await peer.next(Flow, handle=7)
        sent = 0
        while sent < 100:
            while sent < flow.delivery_count + flow.link_credit:
                peer.transfer(7, message(b"x"))
                sent += 1
            flow = await peer.next(Flow, handle=7)
        await until(lambda: len(queue_of(served).active) == sent)


class Unknowing(MemoryNamespace):
    """Nobody knows whether RabbitMQ has the first messages."""

    def __init__(self) -> None:
        super().__init__(QUEUE)
        self.is_back = False

    async def send(self, path: EntityPath, batch: Sequence[Outgoing]) -> None:
        """Store messages once RabbitMQ is back."""
        if not self.is_back:
            raise OperationTimeout("Nobody knows.")
        await super().send(path, batch)


async def test_credit_is_given_again_after_unknown_sends() -> None:
    """A sender of settled messages asks for no outcome: its link stays, and goes on."""
    namespace = Unknowing()
    async with gateway(namespace=namespace, send_credit=10) as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        flow = await peer.next(Flow, handle=7)
        for _ in range(flow.link_credit):
            peer.transfer(7, message(b"x"), settled=True)
        while flow.delivery_count < 10:
            flow = await peer.next(Flow, handle=7)
        namespace.is_back = True
        peer.transfer(7, message(b"y"), settled=True)
        await until(lambda: len(queue_of(served).active) == 1)


async def test_five_hundred_idle_connections() -> None:
    """Five hundred connections are served, and so is the one after them."""
    async with gateway(unauthenticated_max=501) as (served, port):
        idle = [await (await Client.connect(port)).open() for _ in range(500)]
        await until(lambda: len(served.connections) == 500)
        async with client(port) as peer:
            peer.attach(7, "q", role=False)
            await peer.next(Attach, handle=7)
        for each in idle:
            await each.close()
        await until(lambda: not served.connections)


# -- ends


@pytest.mark.parametrize(
    ("garbage", "condition"),
    [
        (b"\xff" * 100_000, "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x10\x02\x00\x00\x00garbage!" * 5_000, "amqp:decode-error"),
    ],
)
async def test_garbage(garbage: bytes, condition: str) -> None:
    """Garbage closes that connection with a reason that can still be read; others go on."""
    async with gateway() as (_, port), client(port) as good, client(port) as bad:
        bad.write(garbage)
        assert (await bad.next(Close)).error.condition == condition
        await bad.closed()
        assert await good.put_token(sas()) == 202


async def test_truncated_frame() -> None:
    """A client that hangs up inside a frame leaves nothing behind."""
    async with gateway() as (served, port), client(port) as peer:
        peer.attach(7, "q", role=True)
        peer.credit(7, 5)
        await peer.next(Attach, handle=7)
        peer.write(b"\x00\x00\x10\x00\x02\x00\x00\x00half")
        await peer.close()
        await until(lambda: not served.connections)
        assert not queue_of(served).waiting


async def test_idle_client() -> None:
    """A client that falls silent is closed after twice its time-out; a heartbeat comes before."""
    limits = Limits(idle_time_out_ms=200)
    async with gateway(limits=limits) as (_, port), client(port) as peer:
        close = await peer.next(Close)
        assert close.error.condition == "amqp:connection:forced"


async def test_heartbeats() -> None:
    """A client that says how long we may be silent hears from us in time."""
    async with gateway() as (_, port):
        peer = await (await Client.connect(port)).open(idle_time_out=1_000)
        started_s = time.monotonic()
        await until(lambda: peer.heartbeats >= 2)
        assert time.monotonic() - started_s < 30
        await peer.close()


async def test_stop() -> None:
    """A stop takes nothing new, lets what is under way end, and says goodbye."""
    namespace = Stuck()
    async with gateway(namespace=namespace) as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        peer.attach(8, "q", role=True)
        peer.credit(8, 5)
        await peer.next(Attach, handle=8)
        peer.transfer(7, message(b"x"))
        await until(lambda: namespace.taken_bytes)
        stopping = asyncio.create_task(served.stop())
        await asyncio.sleep(0)
        namespace.gate.set()
        assert (await peer.next(Disposition, first=1)).state == Accepted()
        assert (await peer.next(Close)).error.condition == "amqp:connection:forced"
        await stopping
        assert len(queue_of(served).active) == 1
        with pytest.raises(OSError, match="Connect call failed"):
            await Client.connect(port)


# -- TLS


async def test_tls(certified: tuple[Path, Path]) -> None:
    """The same protocol over TLS, with our own last words intact."""
    async with gateway(tls=server_tls(certified)) as (_, port):
        peer = await (await Client.connect(port, tls=client_tls(certified))).open()
        assert await peer.put_token(sas()) == 202
        peer.write(b"\xff" * 100)
        assert (await peer.next(Close)).error.condition == "amqp:connection:framing-error"
        await peer.closed()
        await peer.close()
