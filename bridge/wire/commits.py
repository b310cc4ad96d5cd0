"""The envelope of a commit: all that a transaction does, as one message of the inbox.

    SENDS      an envelope of messages, with the identity of this one (`wire.envelope`)
    TRANSFERS  path of the target: u16 + UTF-8 | its envelope: u32 + bytes, repeated
    OUTCOMES   locked message 23 bytes | inquiry 8 bytes | kind u8 | details: u32 + bytes, repeated
    SCHEDULES  messages for later, under the numbers that were reserved for them
               (`wire.reservations`)
    CANCELS    sequence number of a scheduled message i64, repeated
    STATES     source 7 bytes | shard u16 | inquiry 8 bytes | below i64 | session id's size u16 |
               has a state u8 | state's size u32 | session id UTF-8 | state, repeated

    locked message   source 7 bytes | sequence number i64 | identity's hash u32 | generation u32

The envelope's identity is the transaction's id. A section without content is left out. A reader
refuses one that it does not know: a leader must carry out all of a transaction, or nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from bridge.model.name import SHORT_ID_BYTES
from bridge.model.session_id import fold
from bridge.wire import envelope, sections
from bridge.wire.envelope import SOURCE_BYTES, Item, MalformedEnvelope, Operation
from bridge.wire.journal import decode_numbers, encode_numbers
from bridge.wire.reservations import (
    NO_SCHEDULES,
    ReservedSchedules,
    decode_schedules,
    encode_schedules,
)
from bridge.wire.sections import MalformedEntry

FEATURE = "com.busbridge:transactions"
"""The name of the feature that all bridges of a namespace with transactions know."""

INQUIRY_BYTES = 8
"""So many first bytes of an inquiry's identity name it to a commit."""

NO_INQUIRY = bytes(INQUIRY_BYTES)
"""The inquiry of a message that was delivered without one."""

_MESSAGE = struct.Struct(f">{SOURCE_BYTES}sqII")
MESSAGE_BYTES = _MESSAGE.size
_OUTCOME = struct.Struct(f">{SOURCE_BYTES}sqII{INQUIRY_BYTES}sBI")
_STATE = struct.Struct(f">{SOURCE_BYTES}sH{INQUIRY_BYTES}sqHBI")
_NUMBER = struct.Struct(">q")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")


class LockedIn(IntEnum):
    """In which of an entity's queues a locked message is."""

    ACTIVE = 0
    DEAD_LETTER = 1
    DEFERRED = 2
    STATES = 3
    """No messages, but the states of its sessions."""


def source_in(short: bytes, queue: LockedIn) -> bytes:
    """Return the source of a locked message: the bytes that name its queue.

    Args:
        short: the short id of the queue's, or the subscription's, incarnation.
    """
    assert len(short) == SHORT_ID_BYTES
    return short + bytes((queue,))


class LockedMessage(NamedTuple):
    """A message that a receiver has locked, as its entity's leader knows it.

    Attributes:
        source: the queue that it is in (`source_in`).
        number: its sequence number in that queue's series.
        hashed: 32 bits of its identity, to tell apart messages that share a number by accident.
        generation: the deliveries that were counted before it was published again.
    """

    source: bytes
    number: int
    hashed: int
    generation: int = 0


class OutcomeKind(IntEnum):
    """What becomes of a locked message.

    `DROP` is told only: what the message's outcome led to is in its next place, and this is a copy.
    A copy of a higher generation may be what it led to. `STATES` is told only, of a shard: its
    sessions' states that are to be set (`decode_states`).
    """

    COMPLETE = 1
    ABANDON = 2
    DEAD_LETTER = 3
    DEFER = 4
    DROP = 5
    STATES = 6


class LockOutcome(NamedTuple):
    """What a transaction does with a locked message.

    Attributes:
        inquiry: the inquiry that the message was delivered after, or `NO_INQUIRY`.
        details: what whoever carries it out must know, in a form of the engine's; b"" for none.
    """

    message: LockedMessage
    inquiry: bytes
    kind: OutcomeKind
    details: bytes = b""

    @property
    def is_kept(self) -> bool:
        """Whether it must be carried out: a message that comes again is abandoned by that."""
        return self.kind is not OutcomeKind.ABANDON or bool(self.details)


class StateOutcome(NamedTuple):
    """The state that a transaction gives a session.

    Attributes:
        source: the states of the session's queue or subscription (`source_in`).
        shard: the session's shard.
        inquiry: the shard's owner's, or `NO_INQUIRY`.
        below_ms: the times of states that this one follows; one of this time or later shows that it
            was set before, and so does the absence of any.
        session_id: as it is spelt.
        state: `None` clears it.
    """

    source: bytes
    shard: int
    inquiry: bytes
    below_ms: int
    session_id: str
    state: bytes | None

    @property
    def message(self) -> LockedMessage:
        """Its name in reports: no message has it."""
        raw = fold(self.session_id).encode("utf-8", "surrogatepass") + _NUMBER.pack(self.below_ms)
        (number,) = _NUMBER.unpack(sha256(raw).digest()[: _NUMBER.size])
        return LockedMessage(self.source, number, crc32(raw), self.shard)


def shard_of_states(source: bytes, shard: int) -> LockedMessage:
    """Return what an owner asks for to be told the states that its shard's sessions are to get."""
    return LockedMessage(source, shard, 0)


def is_of_states(source: bytes) -> bool:
    """Whether a source names states of sessions."""
    return source[-1] == LockedIn.STATES


class TransferredEnvelope(NamedTuple):
    """A message for another entity.

    Attributes:
        path: the target's path.
        body: the envelope for the target's front exchange.
    """

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class CommitContent:
    """What a transaction does."""

    sends: Sequence[Item] = ()
    transfers: Sequence[TransferredEnvelope] = ()
    outcomes: Sequence[LockOutcome] = ()
    cancels: Sequence[int] = ()
    states: Sequence[StateOutcome] = ()
    schedules: ReservedSchedules = NO_SCHEDULES


class CommitSection(IntEnum):
    """The kinds of sections."""

    SENDS = 1
    TRANSFERS = 2
    OUTCOMES = 3
    CANCELS = 4
    SCHEDULES = 5
    STATES = 6


def encode(identity: bytes, content: CommitContent) -> bytes:
    """Return the body of an envelope that commits a transaction.

    Args:
        identity: the transaction's id, 16 bytes.
    """
    sends = content.sends
    found = {
        CommitSection.SENDS: envelope.encode(Operation.SEND, identity, sends) if sends else b"",
        CommitSection.TRANSFERS: b"".join([_encode_transfer(each) for each in content.transfers]),
        CommitSection.OUTCOMES: encode_outcomes(content.outcomes),
        CommitSection.CANCELS: encode_numbers(content.cancels),
        CommitSection.STATES: encode_states(content.states),
        CommitSection.SCHEDULES: encode_schedules(identity, content.schedules),
    }
    raw = sections.encode_bare([each for each in found.items() if each[1]])
    return envelope.encode_sections(Operation.COMMIT, identity, raw)


def decode(raw: bytes) -> CommitContent:
    """Return the content in the sections of a commit's envelope.

    Raises:
        MalformedEnvelope: the bytes are no such sections, or there is one that this version does
            not know.
    """
    try:
        found = sections.decode_bare(raw, tuple(CommitSection))
        sends = found.get(CommitSection.SENDS, b"")
        return CommitContent(
            envelope.decode(sends).items if sends else (),
            _decode_transfers(found.get(CommitSection.TRANSFERS, b"")),
            decode_outcomes(found.get(CommitSection.OUTCOMES, b"")),
            decode_numbers(found.get(CommitSection.CANCELS, b"")),
            decode_states(found.get(CommitSection.STATES, b"")),
            decode_schedules(found.get(CommitSection.SCHEDULES, b"")),
        )
    except (MalformedEntry, UnicodeDecodeError) as error:
        raise MalformedEnvelope(str(error)) from error


class CommitVerdict(IntEnum):
    """What a leader has decided about a commit."""

    COMMITTED = 1
    REFUSED = 2


def encode_verdict(verdict: CommitVerdict, reason: str = "") -> bytes:
    """Return the content of the reply to a commit; the reason is that of a refusal."""
    return bytes((verdict,)) + reason.encode()


def decode_verdict(content: bytes) -> tuple[CommitVerdict, str]:
    """Return verdict and reason in the content of a reply; raises ValueError."""
    return CommitVerdict(content[0] if content else 0), content[1:].decode()


def encode_message(message: LockedMessage) -> bytes:
    """Return a locked message as bytes."""
    return _MESSAGE.pack(*message)


def decode_messages(raw: bytes) -> list[LockedMessage]:
    """Return the locked messages in bytes; raises `MalformedEntry`."""
    try:
        return [LockedMessage(*each) for each in _MESSAGE.iter_unpack(raw)]
    except struct.error as error:
        raise MalformedEntry(str(error)) from error


def encode_outcomes(outcomes: Sequence[LockOutcome]) -> bytes:
    """Return outcomes as bytes."""
    parts: list[bytes] = []
    for message, inquiry, kind, details in outcomes:
        parts += _OUTCOME.pack(*message, inquiry, kind, len(details)), details
    return b"".join(parts)


def decode_outcomes(raw: bytes) -> list[LockOutcome]:
    """Return the outcomes in bytes; raises `MalformedEntry`."""
    found: list[LockOutcome] = []
    at = 0
    while at < len(raw):
        try:
            *row, inquiry, kind, size = _OUTCOME.unpack_from(raw, at)
            at += _OUTCOME.size
            message = LockedMessage(*row)
            outcome = LockOutcome(message, inquiry, OutcomeKind(kind), raw[at : at + size])
        except (struct.error, ValueError) as error:
            raise MalformedEntry(str(error)) from error
        at += size
        if at > len(raw):
            raise MalformedEntry("an outcome that ends too early")
        found.append(outcome)
    return found


def encode_states(states: Sequence[StateOutcome]) -> bytes:
    """Return states as bytes."""
    parts: list[bytes] = []
    for source, shard, inquiry, below_ms, spelling, state in states:
        name, value = spelling.encode("utf-8", "surrogatepass"), state or b""
        has_state = state is not None
        parts += (
            _STATE.pack(source, shard, inquiry, below_ms, len(name), has_state, len(value)),
            name,
            value,
        )
    return b"".join(parts)


def decode_states(raw: bytes) -> list[StateOutcome]:
    """Return the states in bytes; raises `MalformedEntry`."""
    found: list[StateOutcome] = []
    at = 0
    while at < len(raw):
        try:
            source, shard, inquiry, below_ms, size, has_state, length = _STATE.unpack_from(raw, at)
            name_at = at + _STATE.size
            state_at = name_at + size
            session_id = raw[name_at:state_at].decode("utf-8", "surrogatepass")
        except (struct.error, ValueError) as error:
            raise MalformedEntry(str(error)) from error
        at = state_at + length
        if at > len(raw) or not is_of_states(source) or has_state > 1 or (length and not has_state):
            raise MalformedEntry("a session's state that is none")
        state = raw[state_at:at] if has_state else None
        found.append(StateOutcome(source, shard, inquiry, below_ms, session_id, state))
    return found


def _encode_transfer(transfer: TransferredEnvelope) -> bytes:
    path = transfer.path.encode()
    return b"".join((_U16.pack(len(path)), path, _U32.pack(len(transfer.body)), transfer.body))


def _decode_transfers(raw: bytes) -> list[TransferredEnvelope]:
    found: list[TransferredEnvelope] = []
    at = 0
    while at < len(raw):
        try:
            (size,) = _U16.unpack_from(raw, at)
            path_at, at = at + _U16.size, at + _U16.size + size
            (size,) = _U32.unpack_from(raw, at)
        except struct.error as error:
            raise MalformedEntry(str(error)) from error
        path = raw[path_at:at].decode()
        at += _U32.size
        if at + size > len(raw):
            raise MalformedEntry("a transfer that ends too early")
        found.append(TransferredEnvelope(path, raw[at : at + size]))
        at += size
    return found
