"""WebSocket frames (RFC 6455) as a server reads and writes them; no extensions, no text.

What a frame holds is handed on as it comes, before the frame is whole: a frame of any size makes a
reader hold no more than its head, and a message may be cut into frames anywhere.

aiohttp has a reader too, and answers the upgrade. But it is a coroutine that gives a message when
all of it is there and answers each ping at once, out of reach of the turns that bound who is not
authenticated: 90 of them that send empty frames make a turn of the loop 150 ms long, with this one
it is 10.
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
    """A frame that may not be sent.

    Attributes:
        code: what the close says (RFC 6455, section 7.4.1).
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Input:
    """What some bytes of a client held.

    Attributes:
        payload: of binary frames, in order.
        ping: what the last ping said; it is the one to be answered (section 5.5.3).
        close: what the close said; nothing is read behind it.
    """

    payload: bytes
    ping: bytes | None
    close: bytes | None


class FrameReader:
    """Cuts what a client sends into frames."""

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
            WebSocketError: the client is to be sent a close; the reader is of no use any more.
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
        """Read a frame's head, of a control frame all; return its end, or -1 if it is not whole."""
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
    """Return the head of a server's frame, which is whole and not masked."""
    first = _LAST | opcode
    if size < _SIZE_2:
        return struct.pack("!BB", first, size)
    if size < 1 << 16:
        return struct.pack("!BBH", first, _SIZE_2, size)
    return struct.pack("!BBQ", first, _SIZE_8, size)
