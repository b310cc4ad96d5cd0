"""A TCP relay that keeps the messages that pass through it, read with a decoder of its own.

Clients throw AMQP's types away when they decode (a `ulong` and a `byte` are both an `int`), so what
left one client and what reached another is compared here, section by section, types included.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

TRANSFER = 0x14

_FIXED = {
    0x40: ("null", ""), 0x41: ("boolean", "true"), 0x42: ("boolean", "false"),
    0x43: ("uint", "zero"), 0x44: ("ulong", "zero"), 0x45: ("list", "empty"),
    0x50: ("ubyte", ">B"), 0x51: ("byte", ">b"), 0x52: ("uint", ">B"), 0x53: ("ulong", ">B"),
    0x54: ("int", ">b"), 0x55: ("long", ">b"), 0x56: ("boolean", ">?"), 0x60: ("ushort", ">H"),
    0x61: ("short", ">h"), 0x70: ("uint", ">I"), 0x71: ("int", ">i"), 0x72: ("float", ">f"),
    0x73: ("char", ">I"), 0x74: ("decimal32", "4s"), 0x80: ("ulong", ">Q"), 0x81: ("long", ">q"),
    0x82: ("double", ">d"), 0x83: ("timestamp", ">q"), 0x84: ("decimal64", "8s"),
    0x94: ("decimal128", "16s"), 0x98: ("uuid", "16s"),
}  # fmt: skip
_VARIABLE = {0xA0: "binary", 0xA1: "string", 0xA3: "symbol"}
_COMPOUND = {0xC0: "list", 0xC1: "map", 0xE0: "array"}
_CONSTANTS = {"": None, "true": True, "false": False, "zero": 0, "empty": ()}

Typed = tuple[str, Any]
"""A type's name and the value; lists and maps hold such pairs again."""


def read_value(raw: bytes, at: int) -> tuple[Typed, int]:
    """Read one AMQP value with its type; return it and the position behind it."""
    code, at = raw[at], at + 1
    if code == 0:
        descriptor, at = read_value(raw, at)
        value, at = read_value(raw, at)
        return ("described", (descriptor, value)), at
    return _read_body(raw, at, code)


def _read_body(raw: bytes, at: int, code: int) -> tuple[Typed, int]:
    if code in _FIXED:
        name, layout = _FIXED[code]
        if layout in _CONSTANTS:
            return (name, _CONSTANTS[layout]), at
        return (name, struct.unpack_from(layout, raw, at)[0]), at + struct.calcsize(layout)
    wide = bool(code & 0x10)
    size = struct.unpack_from(">I", raw, at)[0] if wide else raw[at]
    at += 4 if wide else 1
    end, kind = at + size, code & ~0x10
    if kind in _VARIABLE:
        return (_VARIABLE[kind], raw[at:end]), end
    count = struct.unpack_from(">I", raw, at)[0] if wide else raw[at]
    at += 4 if wide else 1
    items = []
    if kind == 0xE0:
        element, at = raw[at], at + 1
        descriptor = None
        if element == 0:
            descriptor, at = read_value(raw, at)
            element, at = raw[at], at + 1
        for _ in range(count):
            item, at = _read_body(raw, at, element)
            items.append(item if descriptor is None else ("described", (descriptor, item)))
        return ("array", tuple(items)), end
    for _ in range(count):
        item, at = read_value(raw, at)
        items.append(item)
    if kind == 0xC1:
        return ("map", tuple(zip(items[::2], items[1::2], strict=True))), end
    return (_COMPOUND[kind], tuple(items)), end


def read_sections(payload: bytes) -> dict[int, list[Typed]]:
    """Return the sections of an encoded message: code -> values, in order."""
    sections: dict[int, list[Typed]] = {}
    at = 0
    while at < len(payload):
        (kind, described), at = read_value(payload, at)
        assert kind == "described"
        (_, code), value = described
        sections.setdefault(code, []).append(value)
    return sections


@dataclass
class Stream:
    """One direction of one connection."""

    messages: list[dict[int, list[Typed]]]
    pending: bytes = b""
    partial: bytes = b""

    def feed(self, data: bytes) -> None:
        """Take bytes; keep each message that is whole."""
        self.pending += data
        while len(self.pending) >= 8:
            if self.pending[:4] == b"AMQP":
                self.pending = self.pending[8:]
                continue
            size = struct.unpack_from(">I", self.pending)[0]
            if len(self.pending) < size:
                return
            frame, self.pending = self.pending[:size], self.pending[size:]
            if frame[5] == 0 and len(frame) > frame[4] * 4:
                self._frame(frame[frame[4] * 4 :])

    def _frame(self, body: bytes) -> None:
        (_, ((_, code), (_, fields))), at = read_value(body, 0)
        if code != TRANSFER:
            return
        self.partial += body[at:]
        if len(fields) > 5 and fields[5][1]:
            return
        self.messages.append(read_sections(self.partial))
        self.partial = b""


@dataclass
class Wiretap:
    """What passed: messages to the server and from it, those of the service's own nodes too."""

    port: int
    sent: list[dict[int, list[Typed]]] = field(default_factory=list)
    received: list[dict[int, list[Typed]]] = field(default_factory=list)

    def with_subject(
        self, messages: list[dict[int, list[Typed]]], subject: str
    ) -> dict[int, list[Typed]]:
        """Return the message whose properties hold this subject."""
        for message in messages:
            for _, properties in message.get(PROPERTIES, ()):
                if len(properties) > 3 and properties[3][1] == subject.encode():
                    return message
        raise AssertionError(f"no message of subject {subject!r} passed")


@contextmanager
def wiretap(server_port: int) -> Iterator[Wiretap]:
    """Relay connections from a port of its own to the server's."""
    listener = socket.create_server(("127.0.0.1", 0))
    tap = Wiretap(listener.getsockname()[1])
    open_sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def pump(source: socket.socket, target: socket.socket, stream: Stream) -> None:
        try:
            while data := source.recv(65536):
                stream.feed(data)
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", server_port))
            open_sockets.extend((client, server))
            for ends in (
                (client, server, Stream(tap.sent)),
                (server, client, Stream(tap.received)),
            ):
                threads.append(threading.Thread(target=pump, args=ends, daemon=True))
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield tap
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(timeout=120)
        for end in open_sockets:
            end.close()
        for thread in threads:
            thread.join(timeout=120)
