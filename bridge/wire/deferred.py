"""Asks of one bridge to another for deferred messages, and the locks in the replies.

ask       u8: 0 the entity itself, 1 its dead-letter sub-queue | sequence numbers i64 ...
          without numbers: for the numbers of all deferred messages
lock      three i64 for each message: the lock token in two halves, the lock's end (UTC ms)
list      i64: how many of the numbers are the entity's own | those i64 ... | dead letters i64 ...
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from uuid import UUID

ASK = "ask"
"""`headers.KIND` of an ask."""

Lock = tuple[UUID, int]
"""A token, and the end of its lock (UTC ms)."""


class MalformedAsk(ValueError):
    """Error for bytes that are no ask."""


def encode_ask(numbers: Sequence[int], *, of_dead_letters: bool) -> bytes:
    """Return the body of an ask for the messages with these sequence numbers."""
    return struct.pack(f">B{len(numbers)}q", of_dead_letters, *numbers)


def decode_ask(body: bytes) -> tuple[list[int], bool]:
    """Return the sequence numbers of an ask, and whether the messages are dead letters.

    Raises:
        MalformedAsk: the body is no ask.
    """
    if len(body) % 8 != 1 or body[0] > 1:
        raise MalformedAsk(f"{len(body)} bytes")
    return list(struct.unpack_from(f">{len(body) // 8}q", body, 1)), body[0] == 1


def encode_list_ask() -> bytes:
    """Return the body of an ask for the numbers of all deferred messages."""
    return encode_ask((), of_dead_letters=False)


def encode_list(own: Sequence[int], of_dead_letters: Sequence[int]) -> list[int]:
    """Return the numbers of all deferred messages as the numbers of a reply."""
    return [len(own), *own, *of_dead_letters]


def decode_list(numbers: Sequence[int]) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return the entity's own deferred messages and its deferred dead letters.

    `None` for a reply without numbers: the owner is a bridge of a version that gives no list.
    """
    if not numbers:
        return None
    return numbers[1 : 1 + numbers[0]], numbers[1 + numbers[0] :]


def encode_locks(locks: Iterable[Lock]) -> list[int]:
    """Return locks as the numbers of a reply."""
    return [
        number
        for token, until_ms in locks
        for number in (*struct.unpack(">qq", token.bytes), until_ms)
    ]


def decode_locks(numbers: Sequence[int]) -> list[Lock]:
    """Return the locks in the numbers of a reply."""
    triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return [(UUID(bytes=struct.pack(">qq", high, low)), until) for high, low, until in triples]
