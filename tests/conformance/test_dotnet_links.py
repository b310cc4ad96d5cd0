"""What .NET's Azure.Messaging.ServiceBus sends, in frames made after its source, and its answers.

The client itself cannot be run here: nothing of it is loaded, and what it does with an answer is
known from reading alone.
"""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

from aiohttp import web

from bridge.model.access import sign
from bridge.wire.amqp10.composite import encode_composite
from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.frame import ProtocolHeader, encode_frame
from bridge.wire.amqp10.message import BATCH_FORMAT, AmqpMessage, decode_message, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from bridge.wire.amqp10.types import (
    Array,
    Char,
    Decimal128,
    Described,
    Long,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
)
from tests.conformance.client import Client, sas
from tests.conformance.door import KEY, RULE_NAME
from tests.conformance.served import gateway, message
from tests.conformance.test_sessions import FILTER, LOCKED_UNTIL, TIMEOUT, accept, served
from tests.conformance.test_sessions import QUEUE as WITH_SESSIONS
from tests.conformance.web import UPGRADE, WebSocket
from tests.unit.machine.amqp10.peer import frame

TIMEOUT_MS = Uint(59_880)
"""What it says of a minute: less a buffer and a jitter."""


class DotNet(Client):
    """A connection as this client has it: each link in a session of its own, ten handles each."""

    def send(self, performative: Any, payload: bytes = b"") -> None:
        """Write a frame of a link."""
        self.send_on(getattr(performative, "handle", 0) // 10, performative, payload)

    def send_on(self, channel: int, performative: Any, payload: bytes = b"") -> None:
        """Write a frame of a session."""
        self.write(frame(channel, performative, payload))

    async def start(self) -> None:
        """Log in, open, and put a first token."""
        self.write(
            ProtocolHeader.SASL.value
            + encode_frame(0, SaslInit("MSSBCBS"), frame_type=1)
            + ProtocolHeader.AMQP.value
        )
        product = {Symbol("product"): "azsdk-net-Azure.Messaging.ServiceBus/7.20.1"}
        name = "sb://localhost:5672/-3f2a91c7"
        self.send(Open(name, "localhost", 65_536, 9_999, 60_000, properties=product))
        self.read()
        await self.begin(0, window=5_000)
        await self.node(0, "$cbs")
        await self.put("q")

    async def begin(self, channel: int, *, window: int = 0xFFFF_FFFF) -> None:
        """Begin a session; but for that of `$cbs` it takes any number of transfers."""
        self.send_on(channel, Begin(None, 1, window, 5_000, 4_999, properties={}))
        await self.next(Begin, remote_channel=channel)

    async def node(self, channel: int, address: str) -> None:
        """Attach a pair of links to a node; requests and replies are settled as they are sent."""
        out, back, fields = 10 * channel, 10 * channel + 1, {TIMEOUT: Uint(60_000)}
        common: dict[str, Any] = {"snd_settle_mode": 1, "properties": fields}
        self.attach(
            out, address, role=False, source=Source(), initial_delivery_count=None, **common
        )
        self.attach(back, address, role=True, target=Target(f"reply-{channel}"), **common)
        self.credit(back, 50, available=0)
        await self.next(Attach, handle=out)
        await self.next(Attach, handle=back)

    async def ask(self, channel: int, fields: dict[str, Any], value: Any) -> AmqpMessage:
        """Send a request, with a tag of no bytes; return the reply."""
        name = f"duplex:{uuid4()}"
        properties = MessageProperties(message_id=name, reply_to=f"reply-{channel}")
        number, self._transfer_id = self._transfer_id, self._transfer_id + 1
        transfer = Transfer(10 * channel, number, b"", 0, settled=True)
        self.send(transfer, encode_message(AmqpMessage(properties, fields, value)))
        transfer, payload = await self.next(Transfer, handle=10 * channel + 1)
        reply = decode_message(payload)
        assert transfer.settled
        assert reply.properties.correlation_id == name
        return reply

    async def put(self, path: str) -> None:
        """Put a token for a path; it is signed for the namespace, under another scheme."""
        uri, end_s = quote("amqps://localhost/", safe="").lower(), int(time.time()) + 1_800
        signature = quote(sign(uri, KEY, end_s), safe="")
        reply = await self.ask(
            0,
            {
                "operation": "put-token",
                "type": "servicebus.windows.net:sastoken",
                "name": f"sb://localhost:5672/{path}",
                "expiration": Timestamp(1_000 * end_s),
            },
            f"SharedAccessSignature sr={uri}&sig={signature}&se={end_s}&skn={RULE_NAME}",
        )
        assert reply.application_properties["status-code"] == 202

    async def sender(self, handle: int) -> None:
        """Attach a sender to `q`; a batch is as large as the link says."""
        await self.begin(handle // 10)
        self.attach(handle, "/q", role=False, properties={TIMEOUT: TIMEOUT_MS})
        assert (await self.next(Attach, handle=handle)).max_message_size == 262_144

    async def receiver(self, handle: int) -> None:
        """Attach a receiver to `q` that awaits what becomes of each settlement."""
        await self.begin(handle // 10)
        source = Source("/q", filter={})
        self.attach(handle, "", role=True, snd_settle_mode=0, rcv_settle_mode=1, source=source)
        answer = await self.next(Attach, handle=handle)
        assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (0, 1)
        assert (answer.source.address, answer.initial_delivery_count) == ("/q", 0)

    async def accept_next(self, handle: int) -> None:
        """Ask for the next session of `q` that is free, by a receiver as above."""
        await self.begin(handle // 10)
        source, said = Source("/q", filter={FILTER: None}), {TIMEOUT: TIMEOUT_MS}
        modes: dict[str, Any] = {"snd_settle_mode": 0, "rcv_settle_mode": 1, "properties": said}
        self.attach(handle, "", role=True, source=source, **modes)

    async def settle(self, channel: int, state: Any, first: int, last: int | None = None) -> Any:
        """Settle deliveries; return the state that the answer has."""
        self.send_on(channel, Disposition(True, first, last, False, state, batchable=True))
        answer = await self.next(Disposition, role=False)
        assert (answer.first, answer.last, answer.settled) == (first, last, True)
        return answer.state

    async def drain(self, handle: int, credit: int, *, seen: int) -> None:
        """Take credit back, and wait for the answer."""
        number = 0x4000_0000 + seen
        self.credit(handle, credit, count=seen, next_incoming_id=number, drain=True)
        flow = await self.next(Flow, handle=handle)
        assert (flow.delivery_count, flow.link_credit, flow.drain) == (seen + credit, 0, True)

    async def end(self, handle: int) -> None:
        """Give up a link and its session, without awaiting the first answer."""
        self.send_detach(handle)
        self.send_on(handle // 10, End())
        await self.next(Detach, handle=handle)
        await self.next(End)


async def dotnet(port: int) -> DotNet:
    """Connect."""
    peer = DotNet(*await asyncio.open_connection("127.0.0.1", port))
    await peer.start()
    return peer


PROPERTIES = {
    "a DateTimeOffset": Described(
        Symbol("com.microsoft:datetime-offset"), Long(638_000_000_000_000_000)
    ),
    "a TimeSpan": Described(Symbol("com.microsoft:timespan"), Long(-10_000)),
    "a Uri": Described(Symbol("com.microsoft:uri"), "https://example.org/"),
    "a Guid": UUID("12345678-1234-5678-1234-567812345678"),
    "a decimal": Decimal128(encode_decimal(Decimal("-79.90"))[1:]),
    "a char": Char("ä"),
    "a byte": Ubyte(200),
    "a DateTime": Timestamp(1_700_000_000_000),
    "a Stream": b"\x00\xff",
    "nothing": None,
}


# -- its usual life


async def test_a_life_of_senders_and_receivers() -> None:
    """A batch in two frames, received, settled on the link and by token, a drain, an end."""
    async with gateway() as (_, port):
        peer = await dotnet(port)
        await peer.sender(10)
        first = encode_message(AmqpMessage(MessageProperties(message_id="1"), PROPERTIES, "one"))
        batch = encode_composite(MessageProperties(message_id="1"))
        batch += message(first) + message(message(b"two")) + message(message(b"three"))
        fields: dict[str, Any] = {"message_format": BATCH_FORMAT, "batchable": True}
        number = peer.transfer(10, batch[:100], more=True, **fields)
        peer.send(Transfer(10), batch[100:])
        assert await peer.outcome(number) == Accepted()
        peer.frames.clear()

        await peer.receiver(20)
        peer.credit(20, 5)
        came = [await peer.next(Transfer, handle=20) for _ in range(3)]
        assert decode_message(came[0][1]).application_properties == PROPERTIES
        ids = [transfer.delivery_id for transfer, _ in came]
        assert await peer.settle(2, Accepted(), ids[0], ids[1]) == Accepted()
        await peer.drain(20, 2, seen=3)
        await peer.end(20)

        token = UUID(bytes_le=came[2][0].delivery_tag)
        await peer.begin(3)
        await peer.put("q/$management")
        await peer.node(3, "q/$management")
        body = {"lock-tokens": Array("uuid", (token,)), "disposition-status": "abandoned"}
        asked = {"operation": "com.microsoft:update-disposition"}
        reply = await peer.ask(3, asked | {"com.microsoft:server-timeout": Uint(60_000)}, body)
        assert reply.application_properties["statusCode"] == 200

        await peer.receiver(40)
        peer.credit(40, 1)
        transfer, _ = await peer.next(Transfer, handle=40)
        assert transfer.delivery_tag != token.bytes_le
        assert await peer.settle(4, Modified(), transfer.delivery_id) == Modified()
        peer.send(Close())
        await peer.next(Close)
        await peer.close()


async def test_a_life_of_a_session() -> None:
    """The next session, its state, a message, drains with and without credit, an end."""
    async with gateway(queue=WITH_SESSIONS) as (_, port):
        peer = await dotnet(port)
        await peer.sender(10)
        properties = MessageProperties(message_id="1", group_id="one")
        peer.transfer(10, encode_message(AmqpMessage(properties, value="x")))

        await peer.accept_next(20)
        answer = await peer.next(Attach, handle=20)
        assert answer.source.filter == {FILTER: "one"}
        assert isinstance(answer.properties[LOCKED_UNTIL], int)
        await peer.begin(3)
        await peer.node(3, "q/$management")
        asked = {"operation": "com.microsoft:get-session-state", "associated-link-name": "link"}
        reply = await peer.ask(3, asked, {"session-id": "one"})
        assert (reply.application_properties["statusCode"], reply.value["session-state"]) == (
            200,
            None,
        )

        peer.frames.clear()
        peer.credit(20, 3)
        transfer, _ = await peer.next(Transfer, handle=20)
        await peer.drain(20, 2, seen=1)
        assert await peer.settle(2, Accepted(), transfer.delivery_id) == Accepted()
        peer.credit(20, 0, count=3, next_incoming_id=0x4000_0001, drain=True)
        await peer.next(Flow, handle=20, drain=True)
        await peer.end(20)
        await peer.close()


# -- connecting


async def test_the_path_of_its_websocket_ends_with_a_slash() -> None:
    """It offers the registered subprotocol alone; the administration API takes all other paths."""
    upgrade = UPGRADE.replace(b"/websocket ", b"/websocket/ ")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _nothing_here)
    async with gateway(app=app) as (_, port):
        below = await WebSocket.connect(port, subprotocol=b"amqp", upgrade=upgrade)
        peer = await Client(below, below).open()  # type: ignore[arg-type]
        assert await peer.put_token(sas()) == 202
        await peer.close()


async def _nothing_here(request: web.Request) -> web.Response:
    return web.Response(status=404)


# -- sessions


async def test_a_drain_without_credit_is_answered() -> None:
    """It drains a session's link after each receive that brought too little, and awaits the flow.

    All that it asked for may have come meanwhile: no credit is left, and the answer is due still.
    """
    async with served() as (_, _, peer):
        accept(peer, 7, "one", timeout_ms=TIMEOUT_MS)
        await peer.next(Attach, handle=7)
        peer.credit(7, 0, drain=True)

        flow = await peer.next(Flow, handle=7)
        assert (flow.link_credit, flow.drain) == (0, True)


async def test_an_accept_that_is_cancelled_gives_up_its_place() -> None:
    """It detaches a link that has no answer yet, and ends its session; one with credit is next."""
    async with gateway(queue=WITH_SESSIONS) as (_, port):
        peer = await dotnet(port)
        await peer.accept_next(20)
        await peer.accept_next(30)
        peer.credit(30, 5, available=0)
        await peer.end(20)
        assert (await peer.next(Attach, handle=20)).source is None

        await peer.sender(10)
        properties = MessageProperties(message_id="1", group_id="one")
        peer.transfer(10, encode_message(AmqpMessage(properties, value="x")))
        assert (await peer.next(Attach, handle=30)).source.filter == {FILTER: "one"}
        await peer.next(Transfer, handle=30)
        await peer.close()


# -- before a token


async def test_sessions_begun_before_a_token() -> None:
    """Its management links begin their sessions first: many receivers may peek at the same time."""
    async with gateway() as (_, port):
        peer = await Client.connect(port)
        await peer.open()
        for channel in range(1, 200):
            peer.write(frame(channel, Begin(None, 1, 5_000, 5_000, properties={})))
        assert await peer.put_token(sas()) == 202
        await peer.close()
