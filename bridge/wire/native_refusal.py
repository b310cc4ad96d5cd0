"""The answer to a client of RabbitMQ's own protocol, AMQP 0-9-1, that has come to the wrong port.

The specification's answer to an unknown protocol header is a header that would have been
understood, of which clients make errors like "incompatible protocol". So the answer is instead the
begin of a conversation in AMQP 0-9-1 and its end, whose text every client shows.
"""

from __future__ import annotations

from typing import Final

from bridge.wire.amqp091 import CONNECTION_CLOSE, CONNECTION_START, method_frame

HEADERS: Final = (
    b"AMQP\x00\x00\x09\x01",
    b"AMQP\x01\x01\x00\x09",
    b"AMQP\x01\x01\x08\x00",
)
"""The protocol headers of AMQP 0-9-1, 0-9 and 0-8, in RabbitMQ's spelling."""

_NOT_IMPLEMENTED: Final = 540
_TEXT_BYTES_MAX: Final = 255


def answer(text: str) -> bytes:
    """Return the bytes that tell a client a text, of which 255 bytes go out; then comes the end."""
    told = text.encode()[:_TEXT_BYTES_MAX].decode(errors="ignore")
    start = method_frame(0, CONNECTION_START, 0, 9, {}, b"PLAIN", b"en_US")
    return start + method_frame(0, CONNECTION_CLOSE, _NOT_IMPLEMENTED, told, 0, 0)
