"""The sequencer of one entity: commands in arrival order in, publications and answers out.

**Theory.** One sequencer at a time owns an entity. Every message that enters passes `apply` and
leaves as publications, in the order of their numbers; every publication puts exactly one entry into
the entity's journal, in the same publish that stores the message:

    a message for now        `$active`: active queue and journal
    a message for later      its bucket, BCC journal
    a scheduled message, due `$active` again, with a new number
    expired_unnumbered       dead-letter queue, BCC journal, moved; or the journal alone
    a message of a topic     see `machine.inbox.fanout`
    imported, reserved       see `machine.inbox.imports`, `reservations`
    a cancel                 the journal alone
    a move                   see `machine.inbox.scheduled_moves`
    numbers passed over      the journal, BCC moved

So the journal holds every number in order, and an entry for every gap between two of them; and a
reader of its tail has this sequencer's memory (see `machine.inbox.replay`). Only a sequencer gives
numbers. No call waits: a publication that fails ends this term of the sequencer, and the next term
begins from the journal.

**After a crash** an arrival may come again. `known` has those of its messages that the journal
holds already. A journal entry is *trusted* when the broker itself has not failed since, and the
journal also has its writer's commit marker: then the message is not published again. Otherwise it
is published again with the same number, and a receiver drops the second copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never
from uuid import UUID

from bridge.machine.inbox.applied import Applied, SenderAnswer, Unplaced
from bridge.machine.inbox.arrival import (
    Cancel,
    Command,
    ExpiredUnnumbered,
    ImportCommand,
    Move,
    RefusedItem,
    SendCommand,
    TokenArrival,
    Used,
)
from bridge.machine.inbox.came import Came
from bridge.machine.inbox.checkpoint import Checkpoint
from bridge.machine.inbox.imports import Imports, failed
from bridge.machine.inbox.journal_entries import JournalEntries
from bridge.machine.inbox.known import Known
from bridge.machine.inbox.numbers import Numbers
from bridge.machine.inbox.pending import identity_hash
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.publications import Publications, waiting_of
from bridge.machine.inbox.reservations import Reservations
from bridge.machine.inbox.scheduled_moves import not_scheduled, parts_of
from bridge.machine.inbox.sequencer_memory import Memory
from bridge.machine.inbox.wheel import BucketKey, place
from bridge.machine.usage.idleness import is_temporary, key_of
from bridge.model.entity import SendEntity, Tier
from bridge.model.tiers import message_size_max_bytes
from bridge.wire import journal, reply, stamp
from bridge.wire.envelope import DIGEST_BYTES, ITEM_IDENTITY_BYTES, Item, item_identity
from bridge.wire.gaps import Gap

TOO_LARGE_REASON = "MessageSizeExceeded"

_NATIVE = b"\xff" * (ITEM_IDENTITY_BYTES - DIGEST_BYTES)
"""Ends the identity of a native message known by its digest; no envelope has so many messages."""


class Sequencer:
    """Gives numbers and times to the messages of one entity.

    Args:
        new_id: the source of `newid()` in a topic's rules; a queue needs none.

    Attributes:
        memory: the counters, times, scheduled messages and all else that a successor needs.
        journal: makes and counts the entries of the journal.
        fanout: a topic's subscriptions; `None` for a queue.
        duplicates: number of messages dropped as duplicates.
        copies_again, copies_too_late: numbers of forwarded and relayed messages (`Came`).
    """

    def __init__(
        self,
        entity: SendEntity,
        tier: Tier,
        memory: Memory,
        new_id: Callable[[], UUID] | None = None,
    ) -> None:
        self.memory = memory
        self.journal = JournalEntries(entity.path)
        self.duplicates = self.copies_again = self.copies_too_late = 0
        self._accepted = 0
        self._activated: list[stamp.Waiting] = []
        self._numbers = Numbers(memory, is_partitioned=entity.enable_partitioning)
        self._publications = Publications(entity, tier, memory, self.journal, self._numbers, new_id)
        self.fanout = self._publications.fanout
        self._imports = Imports(memory, self._publications, self._activated_again)
        self.reservations = Reservations(memory, self._publications, self._activated_again)
        self._take(entity, tier)

    def update(self, entity: SendEntity, tier: Tier) -> None:
        """Take over a changed definition."""
        self._publications.update(entity, tier)
        self._take(entity, tier)

    def _take(self, entity: SendEntity, tier: Tier) -> None:
        self.entity = entity
        self._message_bytes_max = message_size_max_bytes(entity, tier)
        self._temporary_key = key_of(entity) if is_temporary(entity) else b""
        if self._temporary_key:
            self.memory.uses.note_sent(self._temporary_key, self.memory.enqueued_ms)
        self._window_ms = entity.duplicate_detection_history_time_window_ms
        if entity.requires_duplicate_detection:
            self.memory.history.set_window(self._window_ms)
        self.memory.imported.follow(is_held=bool(entity.held))

    def missing_bucket(self, command: Command, now_ms: int) -> BucketKey | None:
        """Return the bucket that a command needs before `apply`; `None`: it needs no other one.

        Only a message without an identity needs its bucket first. If it had a number and came again
        before it is stored, it would get another one.
        """
        if type(command) is not SendCommand or command.identity is not None:
            return None
        item = command.items[0]
        if item.scheduled_ms is None or item.scheduled_ms <= now_ms:
            return None
        where = place(item.scheduled_ms, now_ms)
        if self.memory.wheel.is_usable(where) or self._publications.digest(item) is not None:
            return None
        return where

    def apply(self, command: Command, now_ms: int) -> Applied:
        """Carry out one command; it must not miss a bucket (`missing_bucket`).

        Raises:
            Exception: the command failed, and has changed nothing.
        """
        before = self.checkpoint()
        try:
            return self._apply(command, now_ms)
        except Exception as error:
            self.take_back(command, before)
            return failed(command, error)

    def checkpoint(self) -> Checkpoint:
        """Return what `take_back` needs, should a command fail."""
        activated = len(self._activated)
        counts = self.duplicates, self.copies_again, self.copies_too_late
        return Checkpoint(self.memory, self.journal, counts, self._accepted, activated)

    def take_back(self, command: Command | None, before: Checkpoint) -> None:
        """Undo what a failed command has changed, wholly or in parts."""
        memory = self.memory
        before.restore(memory, self.journal, command)
        memory.history.take_back(self._accepted - before.accepted)
        for waiting in self._activated[before.activated :]:
            memory.pending.add(waiting.number, waiting.due_ms, identity_hash(waiting.identity))
        del self._activated[before.activated :]
        self.duplicates, self.copies_again, self.copies_too_late = before.counts
        self._accepted = before.accepted

    def _apply(self, command: Command, now_ms: int) -> Applied:
        if self._temporary_key and not isinstance(command, Used | TokenArrival):
            self.memory.uses.note_sent(self._temporary_key, now_ms)
        match command:
            case SendCommand():
                return self._send(command, now_ms)
            case Cancel():
                return self._cancel(command)
            case Move():
                return self._move(command, now_ms)
            case ImportCommand():
                return self._imports.apply(command, self.entity, now_ms)
            case Used():
                return self._used(command, now_ms)
            case ExpiredUnnumbered():
                return Applied(self._publications.expired(command.item, now_ms))
            case RefusedItem(item=item, reason=reason, description=description):
                return Applied(self._publications.dead_lettered(item, now_ms, reason, description))
            case TokenArrival():
                return Applied(())
            case _:
                assert_never(command)

    def activate(self, waiting: stamp.Waiting, body: bytes, now_ms: int) -> Sequence[Publication]:
        """Return a due message's publications, none if it waits no more; errors change nothing."""
        assert waiting.due_ms <= now_ms, "nothing is early"
        if not self.is_pending(waiting):
            return self._activated_again(waiting, body)
        before = self.checkpoint()
        try:
            number = self._numbers.next_beside(waiting.number)
            enqueued_ms = self._numbers.enqueued_ms(now_ms)
            made = self._publications.activated(waiting, body, number, enqueued_ms)
        except Exception:
            self.take_back(None, before)
            raise
        self.memory.pending.remove(waiting.number)
        return made

    def _activated_again(self, waiting: stamp.Waiting, body: bytes) -> Sequence[Publication]:
        """Publish again the messages of an earlier term that their queue may lack."""
        known = self.memory.activated.get(waiting.number)
        if known is None or known.is_trusted:
            return ()
        assert known.enqueued_ms is not None
        return self._publications.activated(waiting, body, known.number, known.enqueued_ms, known)

    def is_pending(self, waiting: stamp.Waiting) -> bool:
        """Whether this is the copy of a message that still waits."""
        return self.memory.pending.matches(waiting.number, identity_hash(waiting.identity))

    def is_wanted(self, waiting: stamp.Waiting) -> bool:
        """Whether this copy may still lead to a publication, now or when it is due."""
        known = self.memory.activated.get(waiting.number)
        return self.is_pending(waiting) or (known is not None and not known.is_trusted)

    def skip(self, found: Sequence[Gap]) -> Publication:
        """Pass over numbers that no message gets; return the entry that says so.

        Raises:
            ValueError: a gap is not right behind its series' last number; nothing has changed.
        """
        before = self.checkpoint()
        try:
            for each in found:
                self._numbers.skip(each)
        except ValueError:
            self.take_back(None, before)
            raise
        return self.journal.note_gaps(found)

    def snapshot(self, term: bytes, fingerprint: str, span: int) -> list[Publication]:
        """Return the entries that hold the whole memory; see `JournalEntries.snapshot`."""
        return self.journal.snapshot(self.memory, term, fingerprint, span)

    def inherit(self, read: Memory) -> None:
        """Take from the journal's tail which arrivals may come again; keep all other memory."""
        memory = self.memory
        memory.known, memory.activated = read.known, read.activated
        memory.cancelled, memory.imported = read.cancelled, read.imported

    def forget_inherited(self) -> None:
        """Forget messages and cancels of earlier terms: their arrivals come no more."""
        self.memory.known = {}
        self.memory.activated = {}
        self.memory.cancelled = set()
        self._activated.clear()

    def _send(self, command: SendCommand, now_ms: int) -> Applied:
        if command.identity is None:
            item = command.items[0]
            size_bytes = len(item.body) + len(item.properties)
            if size_bytes > self._message_bytes_max:
                description = (
                    f"The message has {size_bytes} bytes; the limit of '{self.entity.path}' is "
                    f"{self._message_bytes_max}."
                )
                return Applied(
                    self._publications.dead_lettered(item, now_ms, TOO_LARGE_REASON, description)
                )
        publications: list[Publication] = []
        numbers: list[int] = []
        unplaced: list[Unplaced] = []
        identity = stamp.NO_IDENTITY
        refused = dict(command.refused)
        for index, item in enumerate(command.items, command.first):
            if index in refused:
                publications += self._publications.malformed(item, now_ms, refused[index])
                continue
            known = None
            digest = self._publications.digest(item)
            if command.identity is not None:
                identity = item_identity(command.identity, index)
                known = self.memory.known.get(identity)
            elif digest is not None:
                identity = digest + _NATIVE
                if command.comes_again:
                    known = self._known_native(identity, now_ms)
            if known is not None:
                numbers.append(known.number)
                if not known.is_trusted:
                    publications += self._again(item, identity, known, now_ms, unplaced)
                continue
            if item.source is not None:
                came = self.memory.came(item.source, command.identity)
                if came is not Came.FIRST:
                    numbers.append(0)  # no sender waits for it
                    publications += self._publications.not_first(item, came, identity, now_ms)
                    self.copies_again += came is Came.AGAIN
                    self.copies_too_late += came is Came.TOO_LATE
                    continue
            if digest is not None:
                first = self.memory.history.find(digest, now_ms)
                if first is not None:
                    numbers.append(first)
                    self.duplicates += 1
                    continue
            number = self._numbers.next(item)
            numbers.append(number)
            if digest is not None:
                self.memory.history.accept(digest, number, now_ms)
                self._accepted += 1
            if item.scheduled_ms is not None and item.scheduled_ms > now_ms:
                hashed = identity_hash(identity)
                self.memory.pending.add(number, item.scheduled_ms, hashed)
                publications.append(self._scheduled(item, identity, number, now_ms, unplaced))
            else:
                enqueued_ms = self._numbers.enqueued_ms(now_ms)
                publications += self._publications.active(item, identity, number, enqueued_ms)
        if command.reply_to is None:
            return Applied(publications, unplaced=unplaced)
        answer = SenderAnswer(command.reply_to, reply.encode_done(numbers))
        return Applied(publications, answer, unplaced)

    def _scheduled(
        self, item: Item, identity: bytes, number: int, now_ms: int, unplaced: list[Unplaced]
    ) -> Publication:
        """Return the publication of a message for later, into its bucket if that is made."""
        assert item.scheduled_ms is not None
        where = place(item.scheduled_ms, now_ms)
        if not self.memory.wheel.is_usable(where):
            unplaced.append(Unplaced(waiting_of(item, identity, number), item.body))
            return self._publications.unplaced(item, identity, number, now_ms)
        return self._publications.scheduled(item, identity, number, now_ms, where)

    def _known_native(self, identity: bytes, now_ms: int) -> Known | None:
        """Return the journal's entry of a native message that comes again.

        An entry older than the window does not count: it may be another message's with the same id.
        """
        known = self.memory.known.get(identity)
        if known is None or known.enqueued_ms is None:
            return known
        return known if now_ms - known.enqueued_ms < self._window_ms else None

    def _again(
        self,
        item: Item,
        identity: bytes,
        known: Known,
        now_ms: int,
        unplaced: list[Unplaced],
    ) -> Sequence[Publication]:
        """Publish again a message of the journal that the broker may have lost."""
        if known.enqueued_ms is not None:
            made = self._publications
            return made.active(item, identity, known.number, known.enqueued_ms, known)
        assert item.scheduled_ms is not None
        waiting = waiting_of(item, identity, known.number)
        if not self.is_pending(waiting):
            return self._activated_again(waiting, item.body)
        if item.scheduled_ms > now_ms:
            return (self._scheduled(item, identity, known.number, now_ms, unplaced),)
        # A copy in a bucket is dropped when it comes out: this one is active then.
        self._activated.append(waiting)
        return self.activate(waiting, item.body, now_ms)

    def _used(self, command: Used, now_ms: int) -> Applied:
        for key, age_ms in command.used:
            self.memory.uses.tell(self.entity, command.bridge, key, age_ms, now_ms)
        answer = None
        if command.reply_to is not None:
            answer = SenderAnswer(command.reply_to, reply.encode_done(()), after_all=True)
        return Applied((self.journal.note_uses(self.memory),), answer)

    def _cancel(self, command: Cancel) -> Applied:
        pending = self.memory.pending
        answer = None
        if (missing := self._missing(command)) is not None:
            return not_scheduled(self.entity.path, missing, command.reply_to)
        if command.identity not in self.memory.cancelled:
            for number in command.numbers:
                pending.remove(number)
        if command.reply_to is not None:
            answer = SenderAnswer(command.reply_to, reply.encode_done(()))
        # A cancel in the journal is written once more: the broker may have lost it.
        properties = journal.entry_properties(journal.CANCEL, item_identity(command.identity, 0))
        entry = self.journal.entry(properties, journal.encode_cancel(command.numbers))
        return Applied((entry,), answer)

    def _missing(self, command: Cancel | Move) -> int | None:
        """Return a number that is not scheduled; `None`: all are, or an earlier term has begun."""
        if command.identity in self.memory.cancelled:
            return None
        pending = self.memory.pending
        return next((each for each in command.numbers if each not in pending), None)

    def _move(self, command: Move, now_ms: int) -> Applied:
        if (missing := self._missing(command)) is not None:
            return not_scheduled(self.entity.path, missing, command.reply_to)
        cancel, send = parts_of(command)
        sent = self._send(send, now_ms)  # first: if it fails, nothing is cancelled
        cancelled = self._cancel(cancel)
        return sent._replace(publications=[*cancelled.publications, *sent.publications])
