"""Replies between processes to requests with `reply_to`: from a sequencer or a lock's holder.

0 u8 | sequence numbers i64 ...
1 u8 | condition: u16 + UTF-8 | description: UTF-8
2 u8 | content
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

_DONE, _REFUSED, _CONTENT = 0, 1, 2


class MalformedReply(ValueError):
    """Error for bytes that are no reply."""


@dataclass(frozen=True, slots=True)
class Done:
    """The reply to a request that was carried out.

    Attributes:
        numbers: sequence numbers of an envelope's messages (none for cancel), or the ends of locks.
        content: the requested content, in a form that the request implies.
    """

    numbers: tuple[int, ...] = ()
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reply to a request of which nothing was carried out: Azure's condition and a text."""

    condition: str
    description: str


Reply = Done | Refusal


def encode_done(numbers: Sequence[int]) -> bytes:
    """Return the body of a reply with sequence numbers."""
    return struct.pack(f">B{len(numbers)}q", _DONE, *numbers)


def encode_refused(condition: str, description: str) -> bytes:
    """Return the body of a refusal with its reason."""
    name = condition.encode()
    return struct.pack(">BH", _REFUSED, len(name)) + name + description.encode()


def encode_found(content: bytes) -> bytes:
    """Return the body of a reply with the requested content."""
    return bytes((_CONTENT,)) + content


def decode_reply(body: bytes) -> Reply:
    """Return the reply in `body`.

    Raises:
        MalformedReply: the bytes are no reply.
    """
    try:
        if body[0] == _DONE:
            return Done(struct.unpack_from(f">{(len(body) - 1) // 8}q", body, 1))
        if body[0] == _CONTENT:
            return Done(content=body[1:])
        if body[0] == _REFUSED:
            (size,) = struct.unpack_from(">H", body, 1)
            return Refusal(body[3 : 3 + size].decode(), body[3 + size :].decode())
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedReply(str(error)) from error
    raise MalformedReply(f"begins with {body[0]}")
