"""Commits of transactions, as an entity's leader carries them out: all or nothing, and once.

**Theory.** A commit is one arrival of the inbox. Its decision is the first entry that it puts into
the journal, and its messages follow on the same channel. So a journal that has one of them has the
decision, and a leader without the decision has published nothing that a journal knows. What may
refuse a commit stands in the journal before its decision, or in the inbox before its arrival: a
successor without the decision decides as the first leader did. Only a message to be cancelled may
become due meanwhile. RabbitMQ, killed at that instant, may have a message in its queue that the
journal has not: so the messages of a commit that cancels wait until its decision is confirmed.

    comes for the first time      decide; when it can be carried out: decision, messages, transfers
    the same, and cancels         the decision; when that is confirmed, messages and transfers
    decided, may be cut short     (`Known`) the decision again, and what the journal lacks
    decided, and carried out      the answer alone

An arrival may come again because its ack was lost, and another one of the same identity because its
sender had no answer. When the decision is repeated it is an entry of this term, as its messages
are; so a later term knows it again as one that may be cut short.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.machine.inbox.applied import Applied, SenderAnswer
from bridge.machine.inbox.arrival import (
    CarriedOut,
    Commit,
    Inquiry,
    Reserve,
    SendCommand,
    TransactionCommand,
)
from bridge.machine.inbox.checkpoint import Checkpoint
from bridge.machine.inbox.known import decision_key
from bridge.machine.inbox.poisoned_envelope import apply_each
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.reservations import gaps_for
from bridge.machine.inbox.sequencer import Sequencer
from bridge.model.errors import InternalError
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.basic import Properties, text
from bridge.wire.commits import (
    INQUIRY_BYTES,
    NO_INQUIRY,
    CommitVerdict,
    TransferredEnvelope,
    encode_verdict,
    is_of_states,
)
from bridge.wire.decisions import Decision
from bridge.wire.inquiries import encode_answer
from bridge.wire.reply import encode_done, encode_found, encode_refused

NOT_SCHEDULED = "The message with SequenceNumber = {number} is not scheduled, or no longer."
REFUSED_BEFORE = "The transaction was refused before."
FAILED = "It failed inside the bridge ({error})."


def apply_transaction(sequencer: Sequencer, command: TransactionCommand, now_ms: int) -> Applied:
    """Carry out a command about transactions.

    Raises:
        Exception: the command failed, and has changed nothing.
    """
    if isinstance(command, Commit):
        before = sequencer.checkpoint()
        try:
            made = _commit(sequencer, command, now_ms)
        except Exception:
            _take_back(sequencer, command, before)
            raise
        sequencer.reservations.keep(now_ms)
        return made
    if isinstance(command, Inquiry):
        return _answer(sequencer, command)
    if isinstance(command, Reserve):
        return _reserve(sequencer, command)
    return _close(sequencer, command)


def answer_failed(sequencer: Sequencer, command: TransactionCommand, error: Exception) -> Applied:
    """Return what becomes of a command that has failed within the bridge: its sender is told.

    A commit is refused. Who inquires, or reserves, asks again. A report is dropped: it is no loss.

    Raises:
        Exception: `error`, of a commit that was decided before.
    """
    if isinstance(command, Inquiry | Reserve):
        if command.reply_to is None:
            return Applied(())
        body = encode_refused(InternalError.condition, FAILED.format(error=_text_of(error)))
        return Applied((), SenderAnswer(command.reply_to, body))
    if not isinstance(command, Commit):
        return Applied(())
    if command.is_decided or _verdict_of(sequencer, command) is CommitVerdict.COMMITTED:
        raise error
    return _refuse(sequencer, command, FAILED.format(error=_text_of(error)))


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _commit(sequencer: Sequencer, command: Commit, now_ms: int) -> Applied:
    memory = sequencer.memory
    if command.is_decided:
        return _follow(sequencer, command, _sent(sequencer, command, now_ms))
    known = memory.known.get(decision_key(command.identity))
    verdict = _verdict_of(sequencer, command)
    if verdict is None:
        return _decide(sequencer, command, now_ms)
    if known is None or verdict is CommitVerdict.REFUSED:
        # What was published for it may be on its way: the answer waits for that.
        barrier = sequencer.journal.note_asked(NO_INQUIRY, ())
        reason = REFUSED_BEFORE if verdict is CommitVerdict.REFUSED else ""
        return Applied((barrier,), _told(command, verdict, reason))
    made = _sent(sequencer, command, now_ms)
    if known.is_trusted:
        return made._replace(answer=_told(command, verdict))
    del memory.known[decision_key(command.identity)]
    return _follow(sequencer, command, made, _note(sequencer, command))


def _verdict_of(sequencer: Sequencer, command: Commit) -> CommitVerdict | None:
    """Return what was decided about a commit; `None`: nothing is, or it is long forgotten."""
    known = sequencer.memory.known.get(decision_key(command.identity))
    if known is not None:
        return CommitVerdict(known.number)
    return sequencer.memory.decided.verdict_of(command.identity)


def _sent(sequencer: Sequencer, command: Commit, now_ms: int) -> Applied:
    """Return the messages of a commit that is decided.

    What cannot be stored is a dead letter, as of any envelope whose sender was told that it is.
    """
    sends = SendCommand(command.identity, command.content.sends)
    try:
        made = sequencer.apply(sends, now_ms)
    except Exception:
        made = apply_each(sequencer, sends, now_ms)
    return _joined(made, _scheduled(sequencer, command, now_ms))


def _scheduled(sequencer: Sequencer, command: Commit, now_ms: int) -> Applied:
    """Return the messages that a commit schedules, behind those that it sends."""
    content = command.content
    schedule = sequencer.reservations.schedule
    return schedule(command.identity, len(content.sends), content.schedules, now_ms)


def _joined(sent: Applied, scheduled: Applied) -> Applied:
    return Applied(
        [*sent.publications, *scheduled.publications],
        unplaced=[*sent.unplaced, *scheduled.unplaced],
    )


def _take_back(sequencer: Sequencer, command: Commit, before: Checkpoint) -> None:
    """Undo what was stored of a commit that is not decided."""
    sequencer.take_back(SendCommand(command.identity, command.content.sends), before)
    sequencer.reservations.take_back()


def _decide(sequencer: Sequencer, command: Commit, now_ms: int) -> Applied:
    """Decide about a commit that comes for the first time."""
    content = command.content
    made = Applied(())
    reason = command.fault or _refusal(sequencer, command)
    if not reason and (content.sends or content.schedules.items):
        before = sequencer.checkpoint()
        try:
            sent = sequencer.apply(SendCommand(command.identity, content.sends), now_ms)
            made = _joined(sent, _scheduled(sequencer, command, now_ms))
        except Exception as error:
            _take_back(sequencer, command, before)
            reason = f"A message cannot be stored: {_text_of(error)}"
        else:
            if content.cancels:
                _take_back(sequencer, command, before)
    if not reason and content.cancels:
        note = _note(sequencer, command)
        return Applied((note,), goes_on=replace(command, is_decided=True))
    if not reason:
        return _follow(sequencer, command, made, _note(sequencer, command))
    return _refuse(sequencer, command, reason)


def _refuse(sequencer: Sequencer, command: Commit, reason: str) -> Applied:
    """Decide that nothing of a commit is carried out."""
    decision = Decision(command.identity, CommitVerdict.REFUSED)
    sequencer.memory.decided.decide(decision)
    entry = sequencer.journal.note_decision(decision)
    return Applied((entry,), _told(command, CommitVerdict.REFUSED, reason))


def _refusal(sequencer: Sequencer, command: Commit) -> str:
    """Return why a commit cannot be carried out; "" if it can."""
    memory = sequencer.memory
    for outcome in command.content.outcomes:
        if reason := memory.decided.refusal_of(outcome):
            return reason
    for number in command.content.cancels:
        if number not in memory.pending:
            return NOT_SCHEDULED.format(number=number)
    if reason := memory.decided.refusal_of_states(command.content.states):
        return reason
    return sequencer.reservations.refusal_of(command.content.schedules)


def _note(sequencer: Sequencer, command: Commit) -> Publication:
    """Note that a commit is to be carried out, and return the entry that says so."""
    content, memory = command.content, sequencer.memory
    kept = [each for each in content.outcomes if each.is_kept]
    decision = Decision(
        command.identity, CommitVerdict.COMMITTED, kept, content.cancels, content.states
    )
    entry = sequencer.journal.note_decision(decision)  # first: if it fails, nothing has changed
    memory.decided.decide(decision)
    for number in content.cancels:
        memory.pending.remove(number)
    return entry


def _follow(
    sequencer: Sequencer, command: Commit, made: Applied, *decision: Publication
) -> Applied:
    """Return the messages and the transfers of a commit, behind its decision."""
    path = sequencer.entity.path
    publications = (
        *decision,
        *made.publications,
        *[_transfer(path, each) for each in command.content.transfers],
    )
    return Applied(publications, _told(command, CommitVerdict.COMMITTED), made.unplaced)


def _transfer(path: str, transfer: TransferredEnvelope) -> Publication:
    """Return the publication of a message for another entity; the journal does not have it.

    It is published again when it may be lost; its target knows the envelope.
    """
    properties = Properties(headers={headers.TRANSFER_TO: text(transfer.path)}, delivery_mode=2)
    return Publication("", names.transfer_queue(path), properties.encode(), transfer.body)


def _answer(sequencer: Sequencer, command: Inquiry) -> Applied:
    """Tell the outcomes of messages, behind the confirms of all that they follow from."""
    decided = sequencer.memory.decided
    told = [decided.told_of(each) for each in command.messages]
    free = [
        each
        for each, one in zip(command.messages, told, strict=True)
        if one is None or is_of_states(each.source)
    ]
    inquiry = command.identity[:INQUIRY_BYTES]
    decided.note_asked(inquiry, free)
    answer = None
    if command.reply_to is not None:
        answer = SenderAnswer(command.reply_to, encode_found(encode_answer(told)), after_all=True)
    return Applied((sequencer.journal.note_asked(inquiry, free),), answer)


def _close(sequencer: Sequencer, command: CarriedOut) -> Applied:
    """Note what is carried out; of states, of which nothing else reminds, the journal has it."""
    sequencer.memory.decided.close(command.messages)
    states = [each for each in command.messages if is_of_states(each.source)]
    return Applied((sequencer.journal.note_states_set(states),) if states else ())


def _reserve(sequencer: Sequencer, command: Reserve) -> Applied:
    """Pass over numbers, and tell them when the journal says so."""
    is_partitioned = sequencer.entity.enable_partitioning
    numbers, found = gaps_for(
        sequencer.memory, command.identity, command.keys, is_partitioned=is_partitioned
    )
    entry = sequencer.skip(found)
    answer = None
    if command.reply_to is not None:
        answer = SenderAnswer(command.reply_to, encode_done(numbers), after_all=True)
    return Applied((entry,), answer)


def _told(command: Commit, verdict: CommitVerdict, reason: str = "") -> SenderAnswer | None:
    if command.reply_to is None:
        return None
    body = encode_found(encode_verdict(verdict, reason))
    return SenderAnswer(command.reply_to, body, after_all=True)
