"""Entries of the journal about transactions: what was decided, and which messages were asked for.

    decision   DECISION, and NUMBERS with the scheduled messages that it cancels, and STATES
    asked      ASKED
    states-set STATES_SET

    DECISION   the transaction's id 16 bytes | verdict u8 | outcomes that are kept (`wire.commits`)
    ASKED      inquiry 8 bytes | messages that no transaction has settled (`wire.commits`)
    STATES     states that sessions get (`wire.commits`)
    STATES_SET the names of those that are set (`StateOutcome.message`), repeated

No section is optional: a bridge that passed over a decision would carry it out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bridge.wire import journal, sections
from bridge.wire.commits import (
    INQUIRY_BYTES,
    CommitVerdict,
    LockedMessage,
    LockOutcome,
    StateOutcome,
    decode_messages,
    decode_outcomes,
    decode_states,
    encode_message,
    encode_outcomes,
    encode_states,
)
from bridge.wire.envelope import IDENTITY_BYTES
from bridge.wire.journal import JournalSection
from bridge.wire.sections import MalformedEntry

_VERDICT_END = IDENTITY_BYTES + 1


class Decision(NamedTuple):
    """What was decided about a commit.

    Attributes:
        identity: the transaction's id, 16 bytes.
        outcomes: those that are kept until they are carried out, and beyond.
        cancels: the numbers of the scheduled messages that it cancels.
        states: the states that sessions get, kept until they are set.
    """

    identity: bytes
    verdict: CommitVerdict
    outcomes: Sequence[LockOutcome] = ()
    cancels: Sequence[int] = ()
    states: Sequence[StateOutcome] = ()


def encode_decision(decision: Decision) -> bytes:
    """Return the body of an entry with a decision."""
    identity, verdict, outcomes, cancels, states = decision
    raw = identity + bytes((verdict,)) + encode_outcomes(outcomes)
    found = [(JournalSection.DECISION, raw)]
    if cancels:
        found.append((JournalSection.NUMBERS, journal.encode_numbers(cancels)))
    if states:
        found.append((JournalSection.STATES, encode_states(states)))
    return sections.encode(found)


def decode_decision(body: bytes) -> Decision:
    """Return the decision in an entry's body.

    Raises:
        MalformedEntry: the body is no such entry; `NewerJournal` when a newer bridge wrote it.
    """
    known = JournalSection.DECISION, JournalSection.NUMBERS, JournalSection.STATES
    kinds = tuple(int(each) for each in known)
    found = sections.decode(body, kinds)
    raw = found.get(JournalSection.DECISION, b"")
    try:
        verdict = CommitVerdict(raw[IDENTITY_BYTES])
    except (IndexError, ValueError) as error:
        raise MalformedEntry(f"a decision without a verdict: {error}") from error
    return Decision(
        raw[:IDENTITY_BYTES],
        verdict,
        decode_outcomes(raw[_VERDICT_END:]),
        journal.decode_numbers(found.get(JournalSection.NUMBERS, b"")),
        decode_states(found.get(JournalSection.STATES, b"")),
    )


def encode_asked(inquiry: bytes, messages: Sequence[LockedMessage]) -> bytes:
    """Return the body of an entry with messages that were asked for.

    Args:
        inquiry: the name of the inquiry (`wire.commits.INQUIRY_BYTES`).
    """
    assert len(inquiry) == INQUIRY_BYTES
    raw = inquiry + b"".join([encode_message(each) for each in messages])
    return journal.entry_of(JournalSection.ASKED, raw)


def decode_asked(body: bytes) -> tuple[bytes, list[LockedMessage]]:
    """Return the inquiry and the messages in an entry's body; raises as `decode_decision`."""
    raw = journal.section_of(body, JournalSection.ASKED)
    if len(raw) < INQUIRY_BYTES:
        raise MalformedEntry(f"an inquiry of {len(raw)} bytes")
    return raw[:INQUIRY_BYTES], decode_messages(raw[INQUIRY_BYTES:])


def encode_states_set(states: Sequence[LockedMessage]) -> bytes:
    """Return the body of an entry with the names of states that are set."""
    raw = b"".join([encode_message(each) for each in states])
    return journal.entry_of(JournalSection.STATES_SET, raw)


def decode_states_set(body: bytes) -> list[LockedMessage]:
    """Return the names in an entry's body; raises as `decode_decision`."""
    return decode_messages(journal.section_of(body, JournalSection.STATES_SET))
