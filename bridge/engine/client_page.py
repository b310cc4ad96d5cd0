"""Pages of messages in the answers to the library's clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from bridge.message.received import Received
from bridge.message.shown import encode
from bridge.model.errors import ArgumentOutOfRange
from bridge.wire.basic import Table
from bridge.wire.reply import encode_found

COUNT_MAX = 1_000
BYTES_MAX = 8 << 20
"""The most bytes of a page; a client asks again for more, from the next number on."""


def integers(question: Table, name: str) -> list[int]:
    """Return the numbers in a question's field.

    Raises:
        ArgumentOutOfRange: there are more than `COUNT_MAX`.
    """
    fields = cast("list[tuple[str, object]]", question[name][1])
    if len(fields) > COUNT_MAX:
        raise ArgumentOutOfRange(f"{COUNT_MAX} numbers at most are asked for at once.")
    return [cast(int, value) for _, value in fields]


def page(found: Sequence[Received]) -> bytes:
    """Return an answer with the first messages, up to `BYTES_MAX`, at least one."""
    first: list[bytes] = []
    size_bytes = 0
    for each in found:
        message = encode((each,))
        size_bytes += len(message)
        if first and size_bytes > BYTES_MAX:
            break
        first.append(message)
    return encode_found(b"".join(first))


def whole(found: Sequence[Received]) -> bytes:
    """Return an answer with all messages: none may be lost, as they are locked or settled."""
    return encode_found(encode(found))
