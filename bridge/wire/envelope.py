"""Envelopes: messages, schedules, moves and cancels on their way to an entity's sequencer.

An envelope is one message in the inbox, so its content is accepted as a whole or not at all: an
Azure batch is one envelope. Its 0-9-1 properties give its kind (`x-busbridge-kind`) and the
recipient of an answer (`reply_to`, `correlation_id`); everything else is in its body:

    version u8 | operation u8 | identity 16 bytes | count u32 | items

    item of send, schedule, import:
                                 flags u8 | [ttl_ms i64] | [scheduled_ms i64] | [key: u16 + bytes]
                                 | [digest 16] | [source 7] | [imported 55: `wire.imported`]
                                 | properties: u32 + bytes | body: u32 + bytes
    item of cancel:              sequence number i64
    move:                        sequence numbers i64, repeated, then as many items as of schedule
    item of used:                short id of an entity, 6 bytes | age of its last use i64, ms

Envelopes of transactions (`wire.commits`, `wire.inquiries`) have sections in place of items, and
their size in place of the count.

An envelope of uses has its bridge's name in the first 6 bytes of its identity, one of imports the
digest of its run as its identity: its items have identities of their own.

Message `i` of an envelope has the identity `identity + i` (four bytes, big-endian), which lets a
recovering sequencer distinguish two equal messages. All integers are big-endian.

The properties in an item are canonical: as `Properties.encode` writes them, persistent, without
`expiration`, `priority`, `user_id` and without any header that only a broker or the sequencer may
write. So the sequencer can stamp them without decoding the header table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from bridge.wire import headers
from bridge.wire.basic import Properties, Table, text
from bridge.wire.envelope_item import DIGEST_BYTES as DIGEST_BYTES
from bridge.wire.envelope_item import SOURCE_BYTES as SOURCE_BYTES
from bridge.wire.envelope_item import Item as Item
from bridge.wire.envelope_item import MalformedEnvelope as MalformedEnvelope
from bridge.wire.envelope_item import item_bytes as item_bytes
from bridge.wire.envelope_item import item_parts, read_items

VERSION = 1

IDENTITY_BYTES = 16
ITEM_IDENTITY_BYTES = 20

KEY_BYTES_MAX = 2**16 - 1
"""Maximum size of a key: further bytes of a session id or a partition key do not affect the choice
of a partition."""

KIND = "envelope"
"""Value of the header `x-busbridge-kind` on an envelope."""

EXPIRED_UNNUMBERED_KIND = "lapsed"
"""Value of that header on a message that expired in the inbox and came back; the value never
changes."""

REFUSED_KIND = "refused"
"""Value of that header on a message that a bridge could not handle, or found in a wrong queue: it
becomes a dead letter, with reason and description from its headers."""

HEADERS: Table = {headers.KIND: text(KIND)}
"""Headers of an envelope."""

SILENT_PROPERTIES = Properties(headers=HEADERS, delivery_mode=2).encode()
"""Encoded properties of an envelope without an answer."""

_HEAD = struct.Struct(">BB16sI")
HEAD_BYTES = _HEAD.size
_ITEM_BYTES_MIN = 9
_KIND_FIELD = text(KIND)
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_USED = struct.Struct(">6sq")


class Operation(IntEnum):
    """What the sequencer does with an envelope."""

    SEND = 1
    SCHEDULE = 2
    CANCEL = 3
    USED = 4
    MOVE = 5
    IMPORT = 6
    COMMIT = 8  # from here on: envelopes of transactions
    INQUIRE = 9
    CARRIED_OUT = 10
    RESERVE = 11


_ITEMS_ALONE = (Operation.SEND, Operation.SCHEDULE, Operation.IMPORT)
_OF_ITEMS = (*_ITEMS_ALONE, Operation.MOVE)


@dataclass(slots=True)
class Envelope:
    """A decoded envelope: `items` for send, schedule, move, `numbers` for cancel and move, `used`
    for used, encoded `sections` for those of transactions."""

    operation: Operation
    identity: bytes
    items: Sequence[Item] = ()
    numbers: Sequence[int] = ()
    used: Sequence[tuple[bytes, int]] = ()
    sections: bytes = b""


def item_identity(identity: bytes, index: int) -> bytes:
    """Return the identity of message `index` of the envelope `identity`."""
    return identity + _U32.pack(index)


def encode(operation: Operation, identity: bytes, items: Sequence[Item]) -> bytes:
    """Return the body of an envelope that sends, schedules or imports `items`."""
    parts = [part for item in items for part in item_parts(item)]
    return b"".join([encode_head(operation, identity, len(items)), *parts])


def encode_head(operation: Operation, identity: bytes, count: int) -> bytes:
    """Return the beginning of an envelope, behind which its items stand (`encode_item`)."""
    assert len(identity) == IDENTITY_BYTES, identity
    assert operation in _ITEMS_ALONE
    return _HEAD.pack(VERSION, operation, identity, count)


def encode_item(item: Item) -> bytes:
    """Return one item of an envelope."""
    return b"".join(item_parts(item))


def encode_cancel(identity: bytes, numbers: Sequence[int]) -> bytes:
    """Return the body of an envelope that cancels the scheduled messages `numbers`."""
    assert len(identity) == IDENTITY_BYTES, identity
    head = _HEAD.pack(VERSION, Operation.CANCEL, identity, len(numbers))
    return head + _packed(numbers)


def encode_move(identity: bytes, numbers: Sequence[int], items: Sequence[Item]) -> bytes:
    """Return the body of an envelope that has items take the places of scheduled messages.

    Args:
        numbers: of the scheduled messages, one for each item.
    """
    assert len(identity) == IDENTITY_BYTES, identity
    assert len(numbers) == len(items), (len(numbers), len(items))
    parts = [_HEAD.pack(VERSION, Operation.MOVE, identity, len(items)), _packed(numbers)]
    return b"".join(parts + [encode_item(each) for each in items])


def _packed(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">{len(numbers)}q", *numbers)


def encode_used(identity: bytes, used: Sequence[tuple[bytes, int]]) -> bytes:
    """Return the body of an envelope of uses.

    Args:
        used: short id of an entity, and how long ago it was used last (ms).
    """
    assert len(identity) == IDENTITY_BYTES, identity
    head = _HEAD.pack(VERSION, Operation.USED, identity, len(used))
    return head + b"".join([_USED.pack(*each) for each in used])


def encode_sections(operation: Operation, identity: bytes, raw: bytes) -> bytes:
    """Return the body of an envelope of transactions with these encoded sections."""
    assert len(identity) == IDENTITY_BYTES, identity
    return _HEAD.pack(VERSION, operation, identity, len(raw)) + raw


def decode(body: bytes) -> Envelope:
    """Return the envelope in `body`.

    Raises:
        MalformedEnvelope: the bytes are cut short, too long, or of another version.
    """
    head = operation, identity, count = _head(body)
    if operation is Operation.CANCEL:
        if len(body) != _HEAD.size + 8 * count:
            raise MalformedEnvelope(f"{len(body)} bytes for {count} sequence numbers")
        numbers = struct.unpack_from(f">{count}q", body, _HEAD.size)
        return Envelope(operation, identity, numbers=numbers)
    if operation is Operation.USED:
        if len(body) != _HEAD.size + _USED.size * count:
            raise MalformedEnvelope(f"{len(body)} bytes for {count} uses")
        used: Iterable[tuple[bytes, int]] = _USED.iter_unpack(body[_HEAD.size :])
        return Envelope(operation, identity, used=tuple(used))
    if operation >= Operation.COMMIT:
        if len(body) != _HEAD.size + count:
            raise MalformedEnvelope(f"{len(body)} bytes with sections of {count}")
        return Envelope(operation, identity, sections=body[_HEAD.size :])
    items = Items(body, head)
    return Envelope(operation, identity, items=items.take(count), numbers=items.numbers)


def _head(body: bytes) -> tuple[Operation, bytes, int]:
    """Return operation, identity and count of an envelope; raises MalformedEnvelope."""
    try:
        version, operation, identity, count = _HEAD.unpack_from(body)
        if version != VERSION:
            raise MalformedEnvelope(f"version {version}; this bridge reads version {VERSION}")
        if count == 0 and operation != Operation.IMPORT:  # which asks for the last numbers
            raise MalformedEnvelope("holds nothing")
        return Operation(operation), identity, count
    except MalformedEnvelope:
        raise
    except (struct.error, ValueError) as error:
        raise MalformedEnvelope(str(error)) from error


def sent_count(properties: bytes, body: bytes) -> int:
    """Return the number of messages of an envelope that sends and wants no answer; 0: it is none.

    Args:
        properties: the encoded properties, as RabbitMQ delivered them.
    """
    if len(body) < _HEAD.size:
        return 0
    version, operation, _, count = _HEAD.unpack_from(body)
    if version != VERSION or operation != Operation.SEND or len(body) < count * _ITEM_BYTES_MIN:
        return 0
    return int(count) if _wants_no_answer(properties) else 0


def _wants_no_answer(properties: bytes) -> bool:
    """Whether properties are those of an envelope; RabbitMQ adds headers when it comes again."""
    if properties == SILENT_PROPERTIES:
        return True
    try:
        basic = Properties.decode(properties)
    except ValueError:
        return False
    return (basic.headers or {}).get(headers.KIND) == _KIND_FIELD and not basic.reply_to


class Items:
    """The items of an envelope of messages, read in order, some at a time.

    Args:
        head: operation, identity and count, if they are read already.

    Attributes:
        identity: the envelope's.
        left: how many are not read yet.
        numbers: of a move, those of the messages whose places the items take.

    Raises:
        MalformedEnvelope: the bytes are no such envelope.
    """

    def __init__(self, body: bytes, head: tuple[Operation, bytes, int] | None = None) -> None:
        operation, self.identity, self.left = _head(body) if head is None else head
        if operation not in _OF_ITEMS:
            raise MalformedEnvelope(f"operation {operation} has no messages")
        self._count = self.left
        self._body = body
        self._at = _HEAD.size
        self.numbers: Sequence[int] = ()
        if operation is Operation.MOVE:
            self._at += 8 * self.left
            if self._at > len(body):
                raise MalformedEnvelope(f"{len(body)} bytes for {self.left} messages to move")
            self.numbers = struct.unpack_from(f">{self.left}q", body, _HEAD.size)
            if len(set(self.numbers)) < self.left:
                raise MalformedEnvelope("moves a message twice")

    def take(self, count: int) -> list[Item]:
        """Return the next items, `count` at most; behind the last one the body must end.

        Raises:
            MalformedEnvelope: the bytes are cut short, or too long.
        """
        count = min(count, self.left)
        try:
            items, self._at = read_items(self._body, self._at, count)
        except (struct.error, ValueError) as error:
            raise MalformedEnvelope(str(error)) from error
        self.left -= len(items)
        if len(items) < count:
            found = self._count - self.left
            raise MalformedEnvelope(f"{self._count} messages announced, {found} found")
        if not self.left and self._at != len(self._body):
            raise MalformedEnvelope(f"{len(self._body)} bytes, {self._at} expected")
        return items
