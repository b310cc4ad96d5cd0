"""Inquiries: what a deliverer asks an entity's leader about messages that may be settled.

    inquiry      MESSAGES
    carried out  MESSAGES: whose outcomes are carried out
    answer       kind u8 (0: no transaction has settled it) | details: u32 + bytes, for each message
                 in the order of the question

    MESSAGES     locked messages (`wire.commits`)

An inquiry's identity is its envelope's; a commit names it by the first bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from bridge.wire import envelope, sections
from bridge.wire.commits import (
    LockedMessage,
    OutcomeKind,
    decode_messages,
    encode_message,
)
from bridge.wire.envelope import MalformedEnvelope, Operation
from bridge.wire.sections import MalformedEntry

MESSAGES_MAX = 1_000
"""So many messages an inquiry or a report has at most."""

_ANSWER = struct.Struct(">BI")


class InquirySection(IntEnum):
    """The kinds of sections."""

    MESSAGES = 1


Told = tuple[OutcomeKind, bytes] | None
"""What a leader tells of a message: its outcome and the details; `None`: it has none."""


def encode_inquiry(identity: bytes, messages: Sequence[LockedMessage]) -> bytes:
    """Return the body of an envelope that asks for outcomes."""
    return envelope.encode_sections(Operation.INQUIRE, identity, _encode(messages))


def encode_carried_out(identity: bytes, messages: Sequence[LockedMessage]) -> bytes:
    """Return the body of an envelope that says whose outcomes are carried out."""
    return envelope.encode_sections(Operation.CARRIED_OUT, identity, _encode(messages))


def decode(raw: bytes) -> list[LockedMessage]:
    """Return the messages in the sections of an inquiry's or a report's envelope.

    Raises:
        MalformedEnvelope: the bytes are no such sections.
    """
    try:
        found = sections.decode_bare(raw, tuple(InquirySection))
        messages = decode_messages(found.get(InquirySection.MESSAGES, b""))
    except MalformedEntry as error:
        raise MalformedEnvelope(str(error)) from error
    if not 0 < len(messages) <= MESSAGES_MAX:
        raise MalformedEnvelope(f"an inquiry for {len(messages)} messages")
    return messages


def encode_answer(told: Sequence[Told]) -> bytes:
    """Return the content of the reply to an inquiry."""
    parts: list[bytes] = []
    for each in told:
        kind, details = (0, b"") if each is None else each
        parts += _ANSWER.pack(kind, len(details)), details
    return b"".join(parts)


def decode_answer(content: bytes) -> list[Told]:
    """Return what is told of each message in the content of a reply; raises `MalformedEntry`."""
    found: list[Told] = []
    at = 0
    while at < len(content):
        try:
            kind, size = _ANSWER.unpack_from(content, at)
            at += _ANSWER.size
            details = content[at : at + size]
            found.append((OutcomeKind(kind), details) if kind else None)
        except (struct.error, ValueError) as error:
            raise MalformedEntry(str(error)) from error
        at += size
    if at > len(content):
        raise MalformedEntry("an answer that ends too early")
    return found


def _encode(messages: Sequence[LockedMessage]) -> bytes:
    raw = b"".join([encode_message(each) for each in messages])
    return sections.encode_bare([(InquirySection.MESSAGES, raw)])
