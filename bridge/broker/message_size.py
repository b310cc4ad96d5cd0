"""The largest message that a RabbitMQ takes (`max_message_size`), asked of its nodes.

AMQP 0-9-1 tells it only to whoever sends a larger one. RabbitMQ's AMQP 1.0, on the same port and
for the same user, has it in each answer to an attach, before anything is sent (4.0 and newer).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

from bridge.broker.connection.endpoint import Endpoint
from bridge.wire.amqp10.composite import decode_composite
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.frame import AMQP_FRAME, SASL_FRAME, ProtocolHeader, encode_frame
from bridge.wire.amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Open,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
)
from bridge.wire.amqp10.scalars import Symbol

ASK_S = 5.0
"""The longest wait for one node's answer."""

_NAME = "busbridge start"
_FRAME_BYTES_MAX = 65_536
_HEADER_BYTES = 8
_WINDOW = 1
_head = struct.Struct(">IBBH")

log = logging.getLogger(__name__)


async def rabbitmq_bytes_max(endpoint: Endpoint) -> int | None:
    """Return the size of the largest message, in bytes: the smallest answer of all nodes.

    Returns `None` when no node answers.
    """
    asked = [_ask(endpoint, host, port) for host, port in endpoint.hosts]
    found = [each for each in await asyncio.gather(*asked) if each]
    return min(found, default=None)


async def _ask(endpoint: Endpoint, host: str, port: int) -> int | None:
    try:
        async with asyncio.timeout(ASK_S):
            server_name = host if endpoint.tls else None
            reader, writer = await asyncio.open_connection(
                host, port, ssl=endpoint.tls, server_hostname=server_name
            )
            try:
                return await _converse(reader, writer, endpoint)
            finally:
                writer.transport.abort()
    except (OSError, EOFError, TimeoutError, DecodeError, ValueError) as error:
        log.warning("rabbitmq.message_size_unknown host=%s port=%d error=%r", host, port, error)
        return None


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, endpoint: Endpoint
) -> int | None:
    """Log in, and attach a link to no node, as anonymous senders do; nothing is sent."""
    mechanism, response = "PLAIN", f"\0{endpoint.user}\0{endpoint.password}"
    if endpoint.is_external:
        mechanism, response = "EXTERNAL", ""
    writer.write(ProtocolHeader.SASL.value)
    await reader.readexactly(_HEADER_BYTES)
    login = SaslInit(mechanism=Symbol(mechanism), initial_response=response.encode())
    writer.write(encode_frame(0, login, frame_type=SASL_FRAME))
    outcome = await _next(reader, SaslOutcome)
    if outcome.code:
        raise ValueError(f"the login is refused with code {outcome.code}")
    writer.write(ProtocolHeader.AMQP.value)
    await reader.readexactly(_HEADER_BYTES)
    opening = Open(
        container_id=_NAME,
        hostname=f"vhost:{endpoint.vhost}",
        max_frame_size=_FRAME_BYTES_MAX,
    )
    writer.write(encode_frame(0, opening, frame_type=AMQP_FRAME))
    await _next(reader, Open)
    begin = Begin(
        remote_channel=None, next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_WINDOW
    )
    writer.write(encode_frame(0, begin))
    attach = Attach(
        name=_NAME,
        handle=0,
        role=False,
        source=Source(address=_NAME),
        target=Target(),
        initial_delivery_count=0,
    )
    writer.write(encode_frame(0, attach))
    answer = await _next(reader, Attach)
    writer.write(encode_frame(0, Close()))
    await _next(reader, Close)
    size_bytes: int | None = answer.max_message_size
    return size_bytes


async def _next(reader: asyncio.StreamReader, wanted: type) -> Any:
    """Return the next performative of a type; others before it are left out.

    Raises:
        ValueError: RabbitMQ closes the connection, or sends no frame.
    """
    while True:
        size, offset, _, _ = _head.unpack(await reader.readexactly(_HEADER_BYTES))
        if not _HEADER_BYTES <= 4 * offset <= size <= _FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {size} bytes")
        body = await reader.readexactly(size - _HEADER_BYTES)
        if size == 4 * offset:
            continue
        found, _ = decode_composite(body, 4 * offset - _HEADER_BYTES)
        if isinstance(found, wanted):
            return found
        if isinstance(found, Close):
            raise ValueError(f"RabbitMQ closes the connection: {found.error}")
