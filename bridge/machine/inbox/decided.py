"""What an entity's leader has decided about transactions, and which messages were asked for.

A commit is decided once, however often it arrives; so verdicts are kept. RabbitMQ does not confirm
acks, so a message may come again whose outcome was decided and carried out; so outcomes are kept.
An outcome is open until its lock's owner says that it is carried out. Then a copy that comes again
is dropped, whatever the outcome was: what it led to is in its next place already. So many outcomes
are kept; closed ones are forgotten before open ones. Of the details of open ones (changed
properties, a dead letter's reason) so many bytes are kept: the earliest are forgotten. Then the
message is settled without them, as an abandon by RabbitMQ.

The state of a session is kept until the owner of its shard says that it is set, and then forgotten:
what an owner sets once more, because nobody has noted the report, it knows by the state's time.

An inquiry is a fence: RabbitMQ has given the message to whoever asks, and a commit by an earlier
lock on it may still be on its way. A copy of a higher generation was published after that.

    section   VERDICTS: transaction's id 16 bytes | verdict u8, repeated
              STATES: states that are to be set (`wire.commits`)
              CLOSED: locked message 23 bytes, repeated
              OPEN: outcomes (`wire.commits`)
              ASKED: locked message 23 bytes | inquiry 8 bytes, repeated
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import IntEnum

from bridge.wire import sections
from bridge.wire.commits import (
    INQUIRY_BYTES,
    MESSAGE_BYTES,
    NO_INQUIRY,
    CommitVerdict,
    LockedMessage,
    LockOutcome,
    OutcomeKind,
    StateOutcome,
    decode_messages,
    decode_outcomes,
    decode_states,
    encode_message,
    encode_outcomes,
    encode_states,
    is_of_states,
)
from bridge.wire.decisions import Decision
from bridge.wire.envelope import IDENTITY_BYTES
from bridge.wire.inquiries import Told
from bridge.wire.sections import MalformedEntry

KEPT_MAX = 65_536
"""So many verdicts, outcomes and asked messages are kept, of each: at most 5 MB in a snapshot."""

DETAILS_BYTES_MAX = 16_777_216
"""So many bytes of the details of open outcomes are kept: of all that is open in a second they are
a few; more remain where a bridge was killed that had settled thousands with large changes."""

STATES_BYTES_MAX = 4 << 20
"""So many bytes of states wait to be set at most: a snapshot has them."""

SETTLED_BEFORE = "Another transaction has settled the message with SequenceNumber = {number}."
LOCK_LOST = "The lock of the message with SequenceNumber = {number} was lost before the commit."
SESSION_LOST = "The lock of the session '{session}' was lost before the commit."
MANY_STATES = "Too many states of sessions wait to be set: try again in a second."

_DROP: Told = OutcomeKind.DROP, b""

_VERDICT = struct.Struct(f">{IDENTITY_BYTES}sB")
_ASKED = struct.Struct(f">{MESSAGE_BYTES}s{INQUIRY_BYTES}s")
_Key = tuple[bytes, int]


class DecidedSection(IntEnum):
    """The kinds of sections."""

    VERDICTS = 1
    CLOSED = 2
    OPEN = 3
    ASKED = 4
    STATES = 5


class Decided:
    """The verdicts, outcomes and inquiries of one entity.

    Outcomes are by queue and number: of two outcomes of a message the later one counts, which is of
    a higher generation.
    """

    def __init__(self) -> None:
        self._verdicts: OrderedDict[bytes, CommitVerdict] = OrderedDict()
        self._open: OrderedDict[_Key, LockOutcome] = OrderedDict()
        self._closed: OrderedDict[_Key, LockedMessage] = OrderedDict()
        self._asked: OrderedDict[_Key, tuple[LockedMessage, bytes]] = OrderedDict()
        self._detailed: OrderedDict[_Key, int] = OrderedDict()
        self._details_bytes = 0
        self._states: dict[LockedMessage, StateOutcome] = {}
        self._states_bytes = 0

    def __repr__(self) -> str:
        return (
            f"<Decided: {len(self._verdicts)} verdicts, {len(self._open)} open and "
            f"{len(self._closed)} closed outcomes, {len(self._asked)} asked>"
        )

    @property
    def has_any(self) -> bool:
        """Whether the entity ever had a transaction that was decided."""
        return bool(self._verdicts)

    @property
    def open_count(self) -> int:
        """How many outcomes are not said to be carried out."""
        return len(self._open)

    @property
    def states(self) -> list[StateOutcome]:
        """The states that are not said to be set."""
        return list(self._states.values())

    @property
    def outcome_count(self) -> int:
        """How many outcomes are kept."""
        return len(self._open) + len(self._closed)

    @property
    def details_bytes(self) -> int:
        """The bytes of the details that are kept."""
        return self._details_bytes

    def verdict_of(self, identity: bytes) -> CommitVerdict | None:
        """Return the verdict of a transaction; `None`: it is not decided, or long forgotten."""
        return self._verdicts.get(identity)

    def refusal_of(self, outcome: LockOutcome) -> str:
        """Return why an outcome cannot be decided; "" if it can."""
        message = outcome.message
        if self.told_of(message) is not None:
            return SETTLED_BEFORE.format(number=message.number)
        asked = self._asked.get(message[:2])
        if asked is not None and asked[1] != outcome.inquiry and _is_copy(message, asked[0]):
            return LOCK_LOST.format(number=message.number)
        return ""

    def refusal_of_states(self, states: Sequence[StateOutcome]) -> str:
        """Return why states cannot be given to sessions; "" if they can."""
        for each in states:
            asked = self._asked.get((each.source, each.shard))
            if asked is not None and asked[1] != each.inquiry:
                return SESSION_LOST.format(session=each.session_id)
        size_bytes = sum([_size_of(each) for each in states])
        # One alone may be as large as it likes: it would never find more room.
        if self._states and self._states_bytes + size_bytes > STATES_BYTES_MAX:
            return MANY_STATES
        return ""

    def decide(self, decision: Decision) -> None:
        """Keep a verdict and its outcomes; one that is kept already changes nothing."""
        if decision.identity not in self._verdicts:
            for state in decision.states:
                self._keep_state(state)
        self._verdicts[decision.identity] = decision.verdict
        while len(self._verdicts) > KEPT_MAX:
            self._verdicts.popitem(last=False)
        for outcome in decision.outcomes:
            if self.told_of(outcome.message) is not None:
                continue
            key = outcome.message[:2]
            self._take_open(key)
            self._closed.pop(key, None)
            self._put_open(key, outcome._replace(inquiry=NO_INQUIRY))
        self._forget()

    def note_asked(self, inquiry: bytes, messages: Iterable[LockedMessage]) -> None:
        """Keep that messages were asked for: earlier locks on them are lost.

        Args:
            inquiry: the inquiry's name (`wire.commits.INQUIRY_BYTES`).
        """
        for message in messages:
            key = message[:2]
            self._asked[key] = message, inquiry
            self._asked.move_to_end(key)
        while len(self._asked) > KEPT_MAX:
            self._asked.popitem(last=False)

    def told_of(self, message: LockedMessage) -> Told:
        """Return what is to become of a message that comes again; `None`: nothing is decided.

        Of a shard (`shard_of_states`) the states that its sessions are to get.
        """
        key = message[:2]
        if is_of_states(message.source):
            states = [each for each in self._states.values() if (each.source, each.shard) == key]
            return (OutcomeKind.STATES, encode_states(states)) if states else None
        closed = self._closed.get(key)
        if closed is not None:
            return _DROP if _is_copy(message, closed) else None
        outcome = self._open.get(key)
        if outcome is None or not _is_copy(message, outcome.message):
            return None
        return outcome.kind, outcome.details

    def close(self, messages: Iterable[LockedMessage]) -> None:
        """Note whose outcomes are carried out.

        A report of a lower generation is about an earlier outcome: the present one is still due.
        """
        for message in messages:
            state = self._states.pop(message, None)
            if state is not None:
                self._states_bytes -= _size_of(state)
            key = message[:2]
            outcome = self._open.get(key)
            if outcome is not None and message == outcome.message:
                self._take_open(key)
                self._closed[key] = message

    def encode(self) -> bytes:
        """Return all of it as bytes; b"" for none."""
        found = (
            (
                DecidedSection.VERDICTS,
                [_VERDICT.pack(*each) for each in self._verdicts.items()],
            ),
            (
                DecidedSection.CLOSED,
                [encode_message(each) for each in self._closed.values()],
            ),
            (DecidedSection.OPEN, [encode_outcomes(list(self._open.values()))]),
            (DecidedSection.STATES, [encode_states(self.states)]),
            (
                DecidedSection.ASKED,
                [
                    _ASKED.pack(encode_message(message), inquiry)
                    for message, inquiry in self._asked.values()
                ],
            ),
        )
        joined = [(kind, b"".join(parts)) for kind, parts in found]
        return sections.encode_bare([each for each in joined if each[1]])

    @classmethod
    def decode(cls, raw: bytes) -> Decided:
        """Read the bytes of `encode`.

        Raises:
            MalformedEntry: the bytes are malformed; `NewerJournal` if a newer bridge wrote them.
        """
        read = sections.decode_bare(raw, tuple(DecidedSection))
        found = cls()
        try:
            for identity, verdict in _VERDICT.iter_unpack(read.get(DecidedSection.VERDICTS, b"")):
                found._verdicts[identity] = CommitVerdict(verdict)
            for raw_message, inquiry in _ASKED.iter_unpack(read.get(DecidedSection.ASKED, b"")):
                (message,) = decode_messages(raw_message)
                found._asked[message[:2]] = message, inquiry
            for message in decode_messages(read.get(DecidedSection.CLOSED, b"")):
                found._closed[message[:2]] = message
        except (struct.error, ValueError) as error:
            raise MalformedEntry(str(error)) from error
        for outcome in decode_outcomes(read.get(DecidedSection.OPEN, b"")):
            found._put_open(outcome.message[:2], outcome)
        for state in decode_states(read.get(DecidedSection.STATES, b"")):
            found._keep_state(state)
        return found

    def _keep_state(self, state: StateOutcome) -> None:
        if state.message not in self._states:
            self._states[state.message] = state
            self._states_bytes += _size_of(state)

    def _put_open(self, key: _Key, outcome: LockOutcome) -> None:
        self._take_open(key)
        self._open[key] = outcome
        if outcome.details:
            self._detailed[key] = len(outcome.details)
            self._details_bytes += len(outcome.details)

    def _take_open(self, key: _Key) -> None:
        self._open.pop(key, None)
        self._details_bytes -= self._detailed.pop(key, 0)

    def _forget(self) -> None:
        while self.outcome_count > KEPT_MAX:
            if self._closed:
                self._closed.popitem(last=False)
            else:
                self._take_open(next(iter(self._open)))
        while self._details_bytes > DETAILS_BYTES_MAX:
            key, size_bytes = self._detailed.popitem(last=False)
            self._details_bytes -= size_bytes
            outcome = self._open[key]._replace(details=b"")
            if outcome.is_kept:
                self._open[key] = outcome
            else:
                del self._open[key]


def _size_of(state: StateOutcome) -> int:
    return len(state.session_id) + len(state.state or b"")


def _is_copy(message: LockedMessage, decided: LockedMessage) -> bool:
    """Whether it is a message that was decided: one of a higher generation came out of that."""
    return message.hashed == decided.hashed and message.generation <= decided.generation
