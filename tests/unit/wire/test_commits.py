"""Envelopes and entries of transactions: read as written, and refused where they are not whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire import commits, decisions, envelope, inquiries, journal, sections
from bridge.wire.basic import Properties
from bridge.wire.commits import (
    NO_INQUIRY,
    CommitContent,
    CommitVerdict,
    LockedIn,
    LockedMessage,
    LockOutcome,
    OutcomeKind,
    StateOutcome,
    TransferredEnvelope,
)
from bridge.wire.decisions import Decision
from bridge.wire.envelope import Item, MalformedEnvelope, Operation
from bridge.wire.journal import JournalSection
from bridge.wire.sections import MalformedEntry, NewerJournal

IDENTITY = bytes(range(16))
BARE = Properties(delivery_mode=2).encode()
WORD = st.binary(max_size=20)
numbers = st.integers(0, 2**63 - 1)
messages = st.builds(
    LockedMessage,
    st.sampled_from(LockedIn).map(lambda queue: commits.source_in(b"abcdef", queue)),
    numbers,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
outcomes = st.builds(
    LockOutcome, messages, st.binary(min_size=8, max_size=8), st.sampled_from(OutcomeKind), WORD
)
states = st.builds(
    StateOutcome,
    st.just(commits.source_in(b"abcdef", LockedIn.STATES)),
    st.integers(0, 63),
    st.binary(min_size=8, max_size=8),
    numbers,
    st.text(max_size=9),
    st.none() | WORD,
)
contents = st.builds(
    CommitContent,
    st.lists(st.builds(Item, st.just(BARE), WORD, st.none() | numbers), max_size=3),
    st.lists(st.builds(TransferredEnvelope, st.text(max_size=9), WORD), max_size=3),
    st.lists(outcomes, max_size=3),
    st.lists(numbers, max_size=3).map(tuple),
    st.lists(states, max_size=3),
)


def read(body: bytes) -> CommitContent:
    """Return what the envelope of a commit holds."""
    found = envelope.decode(body)
    assert found.operation is Operation.COMMIT
    assert found.identity == IDENTITY
    return commits.decode(found.sections)


@given(contents)
def test_a_commit_is_read_as_it_was_written(content: CommitContent) -> None:
    """Whatever it has, and whatever it lacks; nothing at all is no commit."""
    body = commits.encode(IDENTITY, content)
    if content == CommitContent([], [], [], (), []):
        with pytest.raises(MalformedEnvelope):
            envelope.decode(body)
        return
    found = read(body)
    assert list(found.sends) == list(content.sends)
    assert found.transfers == content.transfers
    assert found.outcomes == content.outcomes
    assert found.cancels == content.cancels
    assert found.states == content.states


@given(contents, st.data())
def test_a_commit_that_is_cut_is_none(content: CommitContent, data: st.DataObject) -> None:
    """Part of a transaction is never carried out."""
    body = commits.encode(IDENTITY, content)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(MalformedEnvelope):
        envelope.decode(body[:cut])
    with pytest.raises(MalformedEnvelope):
        envelope.decode(body + b"?")


@given(contents, st.data())
def test_sections_that_are_cut_are_refused_or_whole(
    content: CommitContent, data: st.DataObject
) -> None:
    """No other error comes out, and what is read has no part of a section."""
    raw = commits.encode(IDENTITY, content)[envelope.HEAD_BYTES :]
    cut = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        found = commits.decode(cut)
    except MalformedEnvelope:
        return
    for name in ("sends", "transfers", "outcomes", "cancels", "states"):
        part = list(getattr(found, name))
        assert part in ([], list(getattr(content, name)))


@pytest.mark.parametrize("kind", [5, 99, 5 | sections.OPTIONAL])
def test_a_section_of_a_later_version_is_refused_unless_it_is_optional(kind: int) -> None:
    """A leader carries out all of a transaction, or nothing."""
    raw = sections.encode_bare([(kind, b"more")])
    if kind & sections.OPTIONAL:
        assert commits.decode(raw) == CommitContent((), [], [], (), [])
        return
    with pytest.raises(MalformedEnvelope):
        commits.decode(raw)


def of_unknown_kind() -> bytes:
    """Return an outcome of a kind that there is not."""
    message = LockedMessage(bytes(7), 1, 1)
    one, other = (
        commits.encode_outcomes([LockOutcome(message, NO_INQUIRY, kind)])
        for kind in (OutcomeKind.COMPLETE, OutcomeKind.ABANDON)
    )
    return bytes(9 if byte != second else byte for byte, second in zip(one, other, strict=True))


def of_no_states() -> bytes:
    """Return a state in a queue of messages."""
    source = commits.source_in(b"abcdef", LockedIn.ACTIVE)
    return commits.encode_states([StateOutcome(source, 0, NO_INQUIRY, 1, "a", b"state")])


@pytest.mark.parametrize(
    "raw",
    [
        sections.encode_bare([(3, b"short")]),
        sections.encode_bare([(2, b"\x00\x01")]),
        sections.encode_bare([(2, b"\x00\x01\xff\x00\x00\x00\x00")]),
        sections.encode_bare([(4, b"short")]),
        sections.encode_bare([(1, b"")]) + b"?",
        sections.encode_bare([(3, of_unknown_kind())]),
        sections.encode_bare([(6, b"short")]),
        sections.encode_bare([(6, of_no_states())]),
    ],
)
def test_what_is_no_commit_is_refused(raw: bytes) -> None:
    """Any client may publish into an inbox."""
    with pytest.raises(MalformedEnvelope):
        commits.decode(raw)


@given(st.lists(messages, min_size=1, max_size=5))
def test_inquiries_and_reports_are_read_as_they_were_written(asked: list[LockedMessage]) -> None:
    """Each has its operation."""
    for encode, operation in (
        (inquiries.encode_inquiry, Operation.INQUIRE),
        (inquiries.encode_carried_out, Operation.CARRIED_OUT),
    ):
        found = envelope.decode(encode(IDENTITY, asked))
        assert found.operation is operation
        assert inquiries.decode(found.sections) == asked


def test_an_inquiry_for_none_or_too_many_is_refused() -> None:
    """A leader's turn of the event loop is short."""
    message = LockedMessage(bytes(7), 1, 1)
    for count in (0, inquiries.MESSAGES_MAX + 1):
        found = envelope.decode(inquiries.encode_inquiry(IDENTITY, [message] * count))
        with pytest.raises(MalformedEnvelope):
            inquiries.decode(found.sections)


@given(st.lists(st.none() | st.tuples(st.sampled_from(OutcomeKind), WORD), max_size=5))
def test_answers_are_read_as_they_were_written(told: list[inquiries.Told]) -> None:
    """A free message's, too; one that is cut is no answer."""
    content = inquiries.encode_answer(told)
    assert inquiries.decode_answer(content) == told
    if content:
        with pytest.raises(MalformedEntry):
            inquiries.decode_answer(content[:-1])


@pytest.mark.parametrize("verdict", CommitVerdict)
def test_verdicts_are_read_as_they_were_written(verdict: CommitVerdict) -> None:
    """With the reason of a refusal."""
    assert commits.decode_verdict(commits.encode_verdict(verdict, "why")) == (verdict, "why")
    with pytest.raises(ValueError, match="0 is not"):
        commits.decode_verdict(b"")


@given(
    st.sampled_from(CommitVerdict),
    st.lists(outcomes, max_size=3),
    st.lists(numbers, max_size=3).map(tuple),
    st.lists(states, max_size=3),
)
def test_decisions_are_read_as_they_were_written(
    verdict: CommitVerdict,
    kept: list[LockOutcome],
    cancels: tuple[int, ...],
    given_states: list[StateOutcome],
) -> None:
    """The entry of the journal has all that a successor needs."""
    decision = Decision(IDENTITY, verdict, kept, cancels, given_states)
    assert decisions.decode_decision(decisions.encode_decision(decision)) == decision


@given(st.lists(messages, max_size=3))
def test_entries_of_inquiries_are_read_as_they_were_written(asked: list[LockedMessage]) -> None:
    """One without messages, too."""
    assert decisions.decode_asked(decisions.encode_asked(IDENTITY[:8], asked)) == (
        IDENTITY[:8],
        asked,
    )


@given(states, states)
def test_a_state_is_reported_by_a_name_of_its_own(one: StateOutcome, other: StateOutcome) -> None:
    """It is the same whatever case the session's id is in."""
    same = (one.session_id.upper(), one.below_ms) == (other.session_id.upper(), other.below_ms)
    if not same:
        assert one.message != other.message
    assert one._replace(session_id="ID").message == one._replace(session_id="id").message
    body = decisions.encode_states_set([one.message, other.message])
    assert decisions.decode_states_set(body) == [one.message, other.message]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        journal.entry_of(JournalSection.DECISION, b"short"),
        journal.entry_of(JournalSection.DECISION, IDENTITY + b"\x09"),
        journal.entry_of(JournalSection.DECISION, IDENTITY + b"\x01?"),
        journal.entry_of(JournalSection.ASKED, b"short"),
        journal.entry_of(JournalSection.ASKED, IDENTITY),
    ],
)
def test_what_is_no_entry_of_transactions_is_refused(body: bytes) -> None:
    """Any client may publish into the journal."""
    with pytest.raises(MalformedEntry):
        decisions.decode_decision(body)
    with pytest.raises(MalformedEntry):
        decisions.decode_asked(body)


def test_a_bridge_that_knows_no_transactions_gives_no_numbers() -> None:
    """It would carry out again what was decided."""
    for body in (
        decisions.encode_decision(Decision(IDENTITY, CommitVerdict.COMMITTED)),
        decisions.encode_asked(IDENTITY[:8], []),
        decisions.encode_states_set([]),
    ):
        with pytest.raises(NewerJournal):
            journal.check_unknown("other", body)
