"""A raw AMQP 1.0 client on asyncio: what SDKs never do can be done with it, and at full speed."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from bridge.model.access import sign
from bridge.wire.amqp10.composite import decode_composite
from bridge.wire.amqp10.frame import ProtocolHeader, encode_frame
from bridge.wire.amqp10.message import AmqpMessage, decode_message, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from tests.conformance.door import KEY, RULE_NAME
from tests.unit.machine.amqp10.peer import frame

PATIENCE_S = 120.0

PART_BYTES = 200_000
"""What is sent in one frame of a large message."""

CBS_OUT, CBS_IN, MANAGEMENT_OUT, MANAGEMENT_IN = 0, 1, 2, 3


def sas(
    path: str = "", *, rule: str = RULE_NAME, key: str = KEY, expires_s: float | None = None
) -> str:
    """Return a token for a path."""
    uri = quote(f"sb://localhost/{path}", safe="")
    end_s = int(expires_s if expires_s is not None else time.time() + 3600)
    signature = quote(sign(uri, key, end_s), safe="")
    return f"SharedAccessSignature sr={uri}&sig={signature}&se={end_s}&skn={rule}"


class Client:
    """A connection with one session; frames that came are kept until they are asked for.

    Attributes:
        frames: (performative, payload), oldest first.
        is_closed: the server has ended the stream.
        heartbeats: empty frames that came.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.frames: list[tuple[Any, bytes]] = []
        self.is_closed = False
        self.heartbeats = 0
        self._reader = reader
        self._writer = writer
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._transfer_id = 0
        self._cbs_pairs: set[int] = set()

    @classmethod
    async def connect(cls, port: int, *, tls: ssl.SSLContext | None = None) -> Client:
        """Open a transport."""
        name = "localhost" if tls is not None else None
        streams = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
        return cls(*streams)

    async def open(self, *, reads: bool = True, **fields: Any) -> Client:
        """SASL ANONYMOUS, open, begin."""
        self._writer.write(
            ProtocolHeader.SASL.value
            + encode_frame(0, SaslInit("ANONYMOUS"), frame_type=1)
            + ProtocolHeader.AMQP.value
        )
        self.send(Open("raw", hostname="localhost", **fields))
        self.send(Begin(None, 0, 5_000, 5_000))
        if reads:
            self.read()
        return self

    def read(self) -> None:
        """Begin to read."""
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        pending = b""
        while data := await self._received():
            pending += data
            at = 0
            while len(pending) - at >= 8:
                if pending[at : at + 4] == b"AMQP":
                    at += 8
                    continue
                size = int.from_bytes(pending[at : at + 4], "big")
                if len(pending) - at < size:
                    break
                if size > 8:
                    performative, end = decode_composite(pending, at + 8)
                    self.frames.append((performative, pending[end : at + size]))
                else:
                    self.heartbeats += 1
                at += size
            pending = pending[at:]
            self._changed.set()
        self.is_closed = True
        self._changed.set()

    async def _received(self) -> bytes:
        try:
            return await self._reader.read(262_144)
        except ConnectionError:
            return b""

    def send(self, performative: Any, payload: bytes = b"") -> None:
        """Write a frame."""
        self._writer.write(frame(0, performative, payload))

    def write(self, data: bytes) -> None:
        """Write any bytes."""
        self._writer.write(data)

    async def until(self, holds: Callable[[], Any], *, within_s: float = PATIENCE_S) -> Any:
        """Wait until something holds, and return it."""
        async with asyncio.timeout(within_s):
            while not (found := holds()):
                self._changed.clear()
                if self.is_closed:
                    raise AssertionError(f"the server hung up; frames: {self.frames}")
                await self._changed.wait()
        return found

    async def next(self, kind: type, **fields: Any) -> Any:
        """Wait for a performative of a kind with these fields, and take it out."""

        def find() -> Any:
            for entry in self.frames:
                if isinstance(entry[0], kind) and all(
                    getattr(entry[0], name) == value for name, value in fields.items()
                ):
                    self.frames.remove(entry)
                    return entry
            return None

        performative, payload = await self.until(find)
        return (performative, payload) if kind is Transfer else performative

    async def closed(self, *, within_s: float = PATIENCE_S) -> None:
        """Wait for the end of the stream."""
        async with asyncio.timeout(within_s):
            while not self.is_closed:
                self._changed.clear()
                await self._changed.wait()

    # -- common exchanges

    def attach(self, handle: int, address: str, *, role: bool, **fields: Any) -> None:
        """Ask for a link; `role` is true to receive."""
        mine = f"client-{handle}"
        attach = Attach(
            name=f"link-{handle}-{uuid4().hex}",
            handle=handle,
            role=role,
            source=Source(address if role else mine),
            target=Target(mine if role else address),
            initial_delivery_count=None if role else 0,
        )
        for name, value in fields.items():
            setattr(attach, name, value)
        self.send(attach)

    def send_detach(self, handle: int) -> None:
        """Give a link up."""
        self.send(Detach(handle, True, None))

    def credit(self, handle: int, credit: int, *, count: int = 0, **fields: Any) -> None:
        """Grant credit."""
        values = {"next_incoming_id": 0x40000000, "incoming_window": 0x7FFFFFFF, **fields}
        self.send(
            Flow(
                **values,
                next_outgoing_id=self._transfer_id,
                outgoing_window=5_000,
                handle=handle,
                delivery_count=count,
                link_credit=credit,
            )
        )

    def transfer(
        self, handle: int, payload: bytes, *, tag: bytes | None = None, **fields: Any
    ) -> int:
        """Send a message; returns its delivery id."""
        number = self._transfer_id
        self._transfer_id += 1
        if tag is None:
            tag = number.to_bytes(4, "big")
        values = {"message_format": 0, **fields}
        self.send(Transfer(handle, number, tag, **values), payload)
        return number

    def deliver(self, handle: int, payload: bytes, **fields: Any) -> int:
        """Send a message of any size, in as many frames as it needs; returns its delivery id."""
        number = self._transfer_id
        for at in range(0, len(payload), PART_BYTES):
            self._transfer_id = number
            more = at + PART_BYTES < len(payload)
            self.transfer(handle, payload[at : at + PART_BYTES], more=more, **fields)
        return number

    async def outcome(self, number: int) -> Any:
        """Wait for what becomes of a delivery."""

        def find() -> Any:
            for performative, _ in self.frames:
                if isinstance(performative, Disposition):
                    last = performative.last
                    if (
                        performative.first
                        <= number
                        <= (performative.first if last is None else last)
                    ):
                        return performative.state
            return None

        return await self.until(find)

    async def _attach_node(self, address: str, handle_out: int, handle_in: int) -> None:
        self.attach(handle_out, address, role=False)
        self.attach(handle_in, address, role=True)
        self.credit(handle_in, 1_000)
        await self.next(Attach, handle=handle_out)
        await self.next(Attach, handle=handle_in)

    async def request(
        self,
        handle_out: int,
        handle_in: int,
        message: AmqpMessage,
        *,
        is_named: bool = False,
        state: Any = None,
    ) -> AmqpMessage:
        """Send a request; return the reply, on the link that it names or that of its session.

        Args:
            state: the state of the delivery, such as a part in a transaction.
        """
        message.properties = MessageProperties(
            message_id=uuid4(), reply_to=f"client-{handle_in}" if is_named else None
        )
        self.deliver(handle_out, encode_message(message), state=state)
        _, payload = await self.next(Transfer, handle=handle_in)
        reply = decode_message(payload)
        assert reply.properties.correlation_id == message.properties.message_id
        return reply

    async def put_token(
        self,
        token: str,
        audience: str = "sb://localhost/",
        kind: str = "servicebus.windows.net:sastoken",
        *,
        pair: int = 0,
    ) -> int:
        """Put a token, by the first pair of links to `$cbs` or another; returns the status."""
        handles = CBS_OUT + 40 * pair, CBS_IN + 40 * pair
        if pair not in self._cbs_pairs:
            await self._attach_node("$cbs", *handles)
            self._cbs_pairs.add(pair)
        reply = await self.request(
            *handles,
            AmqpMessage(
                application_properties={
                    "operation": "put-token",
                    "type": kind,
                    "name": audience,
                },
                value=token,
            ),
            is_named=pair > 0 or len(self._cbs_pairs) > 1,
        )
        return int(reply.application_properties["status-code"])

    async def manage(
        self, entity: str, operation: str, body: Any, *, associated: str | None = None
    ) -> AmqpMessage:
        """Do an operation at an entity's `$management`, in the name of a link or of none."""
        if not getattr(self, "_has_management", False):
            await self._attach_node(f"{entity}/$management", MANAGEMENT_OUT, MANAGEMENT_IN)
            self._has_management = True
        fields = {"operation": operation}
        if associated is not None:
            fields["associated-link-name"] = associated
        message = AmqpMessage(application_properties=fields, value=body)
        return await self.request(MANAGEMENT_OUT, MANAGEMENT_IN, message)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        if self._task is not None:
            await self._task
