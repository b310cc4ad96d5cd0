"""What comes out of an inbox, read: one command an arrival.

An inbox holds envelopes of doors, messages of native publishers, messages that expired in the inbox
and came back (`lapsed`), and the sequencers' ownership tokens. Reading needs no state and no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bridge.wire import envelope, headers
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item, MalformedEnvelope, Operation
from bridge.wire.native import clean

OWNERSHIP_TOKEN_KIND = "baton"
"""Value of `x-busbridge-kind` on a message that a sequencer sent to whoever owns the inbox."""

PROPERTIES_BYTES_MAX = 120_000
"""A message's properties are one frame, and the stamp must fit in too: RabbitMQ closes the whole
connection over a header frame above 131,064 bytes (measured on 3.10, 4.0 and 4.3)."""

BARE = Properties(delivery_mode=2).encode()
"""What is put in place of properties that cannot go on."""


class ReplyTo(NamedTuple):
    """Who waits for an answer."""

    queue: str
    correlation_id: str


@dataclass(frozen=True, slots=True)
class Send:
    """Number these messages, and store those that have a time until then.

    Attributes:
        identity: the envelope's, or `None` for a native message.
        items: the messages.
        reply_to: who wants the numbers.
    """

    identity: bytes | None
    items: Sequence[Item]
    reply_to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Remove these scheduled messages, all of them or none."""

    identity: bytes
    numbers: Sequence[int]
    reply_to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A message that expired before it got its number."""

    item: Item


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something that pretends to be an envelope."""

    item: Item
    reason: str


@dataclass(frozen=True, slots=True)
class OwnershipToken:
    """A sequencer's own message; `life` says whose."""

    life: bytes


Command = Send | Cancel | Lapsed | Malformed | OwnershipToken


def read(properties: bytes, body: bytes, *, detects_duplicates: bool = False) -> Command:
    """Return what an arrival asks for.

    Args:
        properties: as RabbitMQ delivered them.
        body: likewise.
        detects_duplicates: the entity does, so a message id chooses the partition.
    """
    if properties == envelope.SILENT_PROPERTIES:
        return _read_envelope(body, None) or _malformed(Properties.decode(properties), body)
    try:
        basic = Properties.decode(properties)
    except ValueError as error:
        return Malformed(Item(BARE, body), f"The properties cannot be read: {error}")
    if len(properties) > PROPERTIES_BYTES_MAX:
        return Malformed(Item(BARE, body), f"The properties have {len(properties)} bytes.")
    kind = (basic.headers or {}).get(headers.KIND, ("V", None))[1]
    if kind == b"envelope":
        return _read_envelope(body, _reply_to(basic)) or _malformed(basic, body)
    if kind == OWNERSHIP_TOKEN_KIND.encode():
        return OwnershipToken(body)
    item = _native(basic, body, detects_duplicates)
    return Lapsed(item) if kind == b"lapsed" else Send(None, (item,))


def _read_envelope(body: bytes, reply_to: ReplyTo | None) -> Send | Cancel | None:
    try:
        read = envelope.decode(body)
    except MalformedEnvelope:
        return None
    if any(len(item.properties) > PROPERTIES_BYTES_MAX for item in read.items):
        return None
    if read.operation is Operation.CANCEL:
        return Cancel(read.identity, read.numbers, reply_to)
    return Send(read.identity, read.items, reply_to)


def _malformed(basic: Properties, body: bytes) -> Malformed:
    reason = "its messages have too large properties"
    try:
        envelope.decode(body)
    except MalformedEnvelope as error:
        reason = str(error)
    return Malformed(_native(basic, body, False), f"The envelope cannot be read: {reason}")


def _native(basic: Properties, body: bytes, detects_duplicates: bool) -> Item:
    native = clean(basic)
    key = native.key
    if key is None and detects_duplicates and native.message_id is not None:
        key = native.message_id.encode("utf-8", "surrogateescape")
    return Item(native.properties, body, native.ttl_ms, native.scheduled_ms, key)


def _reply_to(basic: Properties) -> ReplyTo | None:
    if not basic.reply_to:
        return None
    return ReplyTo(basic.reply_to, basic.correlation_id or "")
