"""WebSocket frames (RFC 6455) as a server reads and writes them; no extensions, no text.

The reader returns the payload of binary frames as it arrives, before a frame is whole. So it holds
no more than a head or a control frame, whatever a frame's size, and a client may cut a message into
frames anywhere.

aiohttp answers the upgrade, and has a reader of frames, too. But its reader is a coroutine that
returns whole messages and answers each ping at once. It takes no part in the turns that limit the
work for unauthenticated clients: 90 clients that send empty frames make a turn of the event loop
150 ms long; with the reader here it is 10 ms.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

CONTINUATION = 0x0
TEXT = 0x1
BINARY = 0x2
CLOSE = 0x8
PING = 0x9
PONG = 0xA

NORMAL = 1000
PROTOCOL_ERROR = 1002
UNSUPPORTED_DATA = 1003

_LAST = 0x80
_MASKED = 0x80
_CONTROL = 0x8
_CONTROL_BYTES_MAX = 125
_KEY_BYTES = 4
_SIZE_2 = 126
_SIZE_8 = 127


class WebSocketError(Exception):
    """Error for a frame that a client may not send.

    Attributes:
        code: the status code of the close frame to answer with (RFC 6455, section 7.4.1).
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Input:
    """The result of reading some bytes of a client.

    Attributes:
        payload: the payload of binary frames, in order.
        ping: the payload of the last ping, which is the one to answer (section 5.5.3), or `None`.
        close: the payload of the close frame, behind which nothing is read, or `None`.
    """

    payload: bytes
    ping: bytes | None
    close: bytes | None


class WebSocketReader:
    """Reads the frames in a client's bytes."""

    def __init__(self) -> None:
        self._rest = b""
        self._missing = 0
        self._key = b""
        self._is_in_message = False
        self._ping: bytes | None = None
        self._close: bytes | None = None

    def feed(self, data: bytes) -> Input:
        """Read some bytes.

        Raises:
            WebSocketError: a frame breaks the protocol. The caller answers with a close frame, and
                must not use the reader again.
        """
        if self._rest:
            data = self._rest + data
        self._ping = None
        at = 0
        parts: list[bytes] = []
        while self._close is None:
            if self._missing:
                piece = data[at : at + self._missing]
                if not piece:
                    break
                at += len(piece)
                self._missing -= len(piece)
                parts.append(self._unmasked(piece))
                continue
            end = self._read_head(data, at)
            if end < 0:
                break
            at = end
        self._rest = data[at:] if self._close is None else b""
        return self._input(b"".join(parts))

    def _input(self, payload: bytes) -> Input:
        return Input(payload, self._ping, self._close)

    def _read_head(self, data: bytes, at: int) -> int:
        """Read a data frame's head or a whole control frame; return its end, -1 if incomplete."""
        if len(data) - at < 2:
            return -1
        first, second = data[at], data[at + 1]
        size = second & 0x7F
        opcode = first & 0x0F
        self._check(first, second, opcode, size)
        at += 2
        width = 2 if size == _SIZE_2 else 8 if size == _SIZE_8 else 0
        start = at + width + _KEY_BYTES
        if len(data) < start:
            return -1
        if width:
            size = int.from_bytes(data[at : at + width], "big")
            if size >= 1 << 63:
                raise WebSocketError(PROTOCOL_ERROR, "a frame's size has its highest bit set")
        if opcode < _CONTROL:
            self._key = data[start - _KEY_BYTES : start]
            self._missing = size
            self._is_in_message = not first & _LAST
            return start
        if len(data) < start + size:
            return -1
        self._on_control(opcode, data[start - _KEY_BYTES : start], data[start : start + size])
        return start + size

    def _check(self, first: int, second: int, opcode: int, size: int) -> None:
        if first & 0x70:
            raise WebSocketError(PROTOCOL_ERROR, "a reserved bit is set")
        if not second & _MASKED:
            raise WebSocketError(PROTOCOL_ERROR, "a client's frame is not masked")
        if opcode == TEXT:
            raise WebSocketError(UNSUPPORTED_DATA, "AMQP is sent in binary frames")
        if opcode not in (CONTINUATION, BINARY, CLOSE, PING, PONG):
            raise WebSocketError(PROTOCOL_ERROR, f"there is no opcode {opcode}")
        if opcode >= _CONTROL:
            if size > _CONTROL_BYTES_MAX or not first & _LAST:
                raise WebSocketError(PROTOCOL_ERROR, "a control frame is long, or in parts")
        elif self._is_in_message != (opcode == CONTINUATION):
            raise WebSocketError(PROTOCOL_ERROR, "a message begins or goes on out of order")

    def _on_control(self, opcode: int, key: bytes, payload: bytes) -> None:
        said = _xor(payload, key)
        if opcode == PING:
            self._ping = said
        elif opcode == CLOSE:
            self._close = said

    def _unmasked(self, piece: bytes) -> bytes:
        key = self._key
        shift = len(piece) % _KEY_BYTES
        self._key = key[shift:] + key[:shift]
        return _xor(piece, key)


def _xor(data: bytes, key: bytes) -> bytes:
    size = len(data)
    keys = key * (size // _KEY_BYTES + 1)
    mixed = int.from_bytes(data, "little") ^ int.from_bytes(keys[:size], "little")
    return mixed.to_bytes(size, "little")


def frame_head(opcode: int, size: int) -> bytes:
    """Return the head of an unfragmented, unmasked frame, as a server sends it."""
    first = _LAST | opcode
    if size < _SIZE_2:
        return struct.pack("!BB", first, size)
    if size < 1 << 16:
        return struct.pack("!BBH", first, _SIZE_2, size)
    return struct.pack("!BBQ", first, _SIZE_8, size)
