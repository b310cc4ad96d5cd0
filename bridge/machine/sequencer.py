"""The sequencer of one entity: commands in arrival order in, publications and answers out.

**Theory.** One sequencer at a time owns an entity. Every message that enters passes `apply` and
leaves as publications, in the order of their numbers; every publication puts exactly one entry into
the entity's journal, in the same publish that stores the message:

    a message for now        `$active`: active queue and journal
    a message for later      its bucket, BCC journal
    a scheduled one, due     `$active` again, with a new number
    expired_unnumbered       dead-letter queue, BCC journal, moved; or the journal alone
    one of a topic           as `machine.fanout` says
    a cancel                 the journal alone

So the journal holds every number in order, and whoever reads its tail knows what this object knew
(see `machine.replay`). Numbers are given here and nowhere else; nothing here waits: a publication
that fails ends this term of the sequencer, and the next one begins from the journal.

**After a crash** an arrival may come again. `known` says which of its messages the journal holds
already. What the journal says is *trusted* when the broker itself has not failed since, and the
journal also says that all of its writer's publications have landed: then the message is not
published again. Otherwise it is, with the same number, and a receiver drops the second copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never
from uuid import UUID

from bridge.machine.arrival import (
    Cancel,
    Command,
    ExpiredUnnumbered,
    OwnershipToken,
    Refused,
    ReplyTo,
    Send,
    Used,
)
from bridge.machine.fanout import Fanout
from bridge.machine.forwarded import Forwarded
from bridge.machine.history import History
from bridge.machine.idleness import Uses, is_temporary, key_of
from bridge.machine.known import (
    Known,
    encode_activated,
    encode_activated_copies,
    encode_cancelled,
    encode_copies,
    encode_known,
)
from bridge.machine.left_out import Missed
from bridge.machine.left_out import encode as encode_left_out
from bridge.machine.pending import Pending, identity_hash
from bridge.machine.publication import Publication as Publication
from bridge.machine.wheel import Place, Wheel, place
from bridge.model import number as numbering
from bridge.model.duration import MAX_MS
from bridge.model.entity import (
    TIER_TIME_TO_LIVE_MAX_MS,
    Queue,
    SendEntity,
    Tier,
    Topic,
    effective_time_to_live_ms,
    message_size_max_bytes,
)
from bridge.model.errors import MessageNotFound
from bridge.topology import names
from bridge.wire import headers, journal, reply, stamp
from bridge.wire.basic import encode_fields, text
from bridge.wire.digest import with_key
from bridge.wire.envelope import DIGEST_BYTES, ITEM_IDENTITY_BYTES, Item, item_identity
from bridge.wire.journal import BucketState
from bridge.wire.message_view import MessageView

EXPIRED_REASON = "TTLExpiredException"
EXPIRED_DESCRIPTION = "The message expired and was dead lettered."
TOO_LARGE_REASON = "MessageSizeExceeded"

_NATIVE = b"\xff" * (ITEM_IDENTITY_BYTES - DIGEST_BYTES)
"""Ends the identity of a native message that is known by its digest; no envelope has as many."""

_SNAPSHOT_PROPERTIES = journal.entry_properties(journal.SNAPSHOT)


class Answer(NamedTuple):
    """What to tell whoever waits, once every publication is confirmed."""

    to: ReplyTo
    body: bytes


class Outcome(NamedTuple):
    """What one command leads to."""

    publications: Sequence[Publication]
    answer: Answer | None = None


@dataclass(slots=True)
class Memory:
    """What a sequencer knows: what a snapshot holds, and what the journal's tail adds to it.

    Attributes:
        counters: the last number of each partition.
        enqueued_ms: the last enqueued time.
        pending: what is scheduled.
        wheel: the buckets.
        average_bytes: of a scheduled message.
        known: identity -> a message of an earlier term's, whose arrival may come again.
        activated: number as scheduled -> the same message with its new number.
        cancelled: identities of cancels that earlier terms carried out.
        subscriptions: the last number of each subscription, by its short id; of a topic.
        uses: when what is temporary was used last.
        history: what was accepted, where duplicates are detected.
        left_out: the subscriptions whose queues take nothing, by their short ids.
        forwarded: what was forwarded to the entity last.
    """

    counters: list[int]
    enqueued_ms: int = 0
    pending: Pending = field(default_factory=Pending)
    wheel: Wheel = field(default_factory=Wheel)
    average_bytes: int = 1024
    known: dict[bytes, Known] = field(default_factory=dict)
    activated: dict[int, Known] = field(default_factory=dict)
    cancelled: set[bytes] = field(default_factory=set)
    subscriptions: dict[bytes, int] = field(default_factory=dict)
    uses: Uses = field(default_factory=Uses)
    history: History = field(default_factory=History)
    left_out: dict[bytes, Missed] = field(default_factory=dict)
    forwarded: Forwarded = field(default_factory=Forwarded)

    @property
    def has_inherited(self) -> bool:
        """Whether something of earlier terms may come again."""
        return bool(self.known or self.activated or self.cancelled)


def blank(*, is_partitioned: bool) -> Memory:
    """Return the memory of an entity that has given no number yet."""
    partitions = range(numbering.PARTITION_COUNT if is_partitioned else 1)
    return Memory(
        counters=[numbering.compose(partition, 0) for partition in partitions],
        pending=Pending(is_partitioned=is_partitioned),
    )


def marker(entity: SendEntity, term: bytes, fingerprint: str) -> Publication:
    """Return the entry that begins a sequencer's term."""
    properties = journal.entry_properties(journal.MARKER)
    body = journal.Marker(term, fingerprint).encode()
    return Publication("", names.journal(entity.path), properties, body)


def commit_marker(entity: SendEntity, term: bytes, fingerprint: str) -> Publication:
    """Return the entry that says: all that this term published has reached its queues."""
    properties = journal.entry_properties(journal.COMMIT)
    body = journal.Marker(term, fingerprint).encode()
    return Publication("", names.journal(entity.path), properties, body)


def is_snapshot(publication: Publication) -> bool:
    """Whether this is a part of a snapshot: its span is only right where it was made to stand."""
    return publication.properties == _SNAPSHOT_PROPERTIES


class Sequencer:
    """Gives numbers and times to the messages of one entity.

    Args:
        new_id: the chance behind `newid()` in a topic's rules; a queue needs none.
    """

    def __init__(
        self,
        entity: SendEntity,
        tier: Tier,
        memory: Memory,
        new_id: Callable[[], UUID] | None = None,
    ) -> None:
        self.memory = memory
        self.entries = 0
        self.bytes = 0
        self.duplicates = 0
        self.forwarded_again = 0
        self._turn = 0
        self._accepted = 0
        self._active = names.active_exchange(entity.path)
        self._journal = names.journal(entity.path)
        self._dead = names.dead_letter_queue(entity.path)
        self._copy = stamp.copy_to(self._journal)
        self._copy_dead = stamp.copy_to(self._journal, names.moved(entity.path))
        self._fanout: Fanout | None = None
        if isinstance(entity, Topic):
            assert new_id is not None, "rules may need it"
            self._fanout = Fanout(entity, memory.subscriptions, memory.left_out, new_id)
        self.update(entity, tier)

    def update(self, entity: SendEntity, tier: Tier) -> None:
        """Take over a changed definition."""
        self.entity = entity
        self._is_partitioned = entity.enable_partitioning
        self._message_bytes_max = message_size_max_bytes(entity, tier)
        self._ttl_cap_ms = min(
            entity.default_message_time_to_live_ms, TIER_TIME_TO_LIVE_MAX_MS[tier]
        )
        if self._fanout is not None and isinstance(entity, Topic):
            self._fanout.update(entity)
        self._temporary_key = key_of(entity) if is_temporary(entity) else b""
        if self._temporary_key:
            self.memory.uses.note_sent(self._temporary_key, self.memory.enqueued_ms)
        self._detects = entity.requires_duplicate_detection
        self._window_ms = entity.duplicate_detection_history_time_window_ms
        if self._detects:
            self.memory.history.set_window(self._window_ms)

    def dues_ms(self, command: Command, now_ms: int) -> list[int]:
        """Return the times for which `apply` would need a bucket."""
        if not isinstance(command, Send):
            return []
        return [
            item.scheduled_ms
            for item in command.items
            if item.scheduled_ms is not None and (item.scheduled_ms > now_ms or self.memory.known)
        ]

    def apply(self, command: Command, now_ms: int) -> Outcome:
        """Carry out one command; the buckets for `dues_ms` must be there.

        Raises:
            Exception: it cannot be carried out, and nothing has come of it.
        """
        memory = self.memory
        before = memory.counters[:], memory.enqueued_ms, self.entries, self.bytes
        subscriptions = memory.subscriptions.copy()
        self._accepted = 0
        try:
            return self._apply(command, now_ms)
        except Exception:
            memory.history.take_back(self._accepted)
            if type(command) is Send and command.identity is not None:
                for item in command.items:
                    if item.source is not None:
                        memory.forwarded.take_back(item.source, command.identity)
            memory.subscriptions.clear()
            memory.subscriptions.update(subscriptions)
            given, (memory.counters[:], memory.enqueued_ms, self.entries, self.bytes) = (
                memory.counters[:],
                before,
            )
            for last, first in zip(given, memory.counters, strict=True):
                for number in range(first + 1, last + 1):
                    memory.pending.remove(number)
            raise

    def _apply(self, command: Command, now_ms: int) -> Outcome:
        if self._temporary_key and not isinstance(command, Used | OwnershipToken):
            self.memory.uses.note_sent(self._temporary_key, now_ms)
        match command:
            case Send():
                return self._send(command, now_ms)
            case Cancel():
                return self._cancel(command)
            case Used():
                return self._used(command, now_ms)
            case ExpiredUnnumbered():
                return Outcome(self._bury_expired(command.item, now_ms))
            case Refused(item=item, reason=reason, description=description):
                return Outcome(self._bury(item, now_ms, reason, description))
            case OwnershipToken():
                return Outcome(())
            case _:
                assert_never(command)

    def activate(self, waiting: stamp.Waiting, body: bytes, now_ms: int) -> Sequence[Publication]:
        """Make a scheduled message that is due an active one; nothing when it waits no more."""
        assert waiting.due_ms <= now_ms, "nothing is early"
        if not self.is_pending(waiting):
            known = self.memory.activated.get(waiting.number)
            if known is None or known.is_trusted:
                return ()
            assert known.enqueued_ms is not None
            return self._activated(waiting, body, known.number, known.enqueued_ms, known)
        self.memory.pending.remove(waiting.number)
        partition = numbering.partition_of(waiting.number) if self._is_partitioned else 0
        number = self._next(partition)
        return self._activated(waiting, body, number, self._enqueued(now_ms))

    def is_pending(self, waiting: stamp.Waiting) -> bool:
        """Whether this copy is that of a message that still waits."""
        return self.memory.pending.matches(waiting.number, identity_hash(waiting.identity))

    def is_wanted(self, waiting: stamp.Waiting) -> bool:
        """Whether this copy may still lead to a publication, now or when it is due."""
        if self.is_pending(waiting):
            return True
        known = self.memory.activated.get(waiting.number)
        return known is not None and not known.is_trusted

    def note_bucket(self, where: Place, state: BucketState) -> Publication:
        """Return the entry that says what becomes of a bucket."""
        body = journal.encode_bucket(where.level, where.slot, state)
        return self._entry(journal.entry_properties(journal.BUCKET), body)

    def note_uses(self) -> Publication:
        """Return the entry that says when what is temporary was used last."""
        body = journal.encode_uses(self.memory.uses.encode())
        return self._entry(journal.entry_properties(journal.USES), body)

    def note_left_out(self) -> Publication:
        """Return the entry that says which subscriptions are left out."""
        body = journal.encode_left_out(encode_left_out(self.memory.left_out))
        return self._entry(journal.entry_properties(journal.LEFT_OUT), body)

    def segment(self, rows: bytes) -> Publication:
        """Return a segment of the entity's history; it is no entry of the journal."""
        properties = journal.entry_properties(journal.ACCEPTED)
        return Publication(
            "", names.history(self.entity.path), properties, journal.encode_accepted(rows)
        )

    def snapshot(self, term: bytes, fingerprint: str, span: int) -> list[Publication]:
        """Return the entries that hold all that is known now.

        Args:
            term: this term.
            fingerprint: the boot of the broker.
            span: how many of this term's entries may belong to arrivals that are not acked yet.
                What earlier terms numbered, and what may come again, is in the snapshot itself.
        """
        memory = self.memory
        whole = journal.Snapshot(
            term=term,
            fingerprint=fingerprint,
            enqueued_ms=memory.enqueued_ms,
            span=span,
            average_bytes=memory.average_bytes,
            counters=list(memory.counters),
            buckets=[
                (*where, bucket.young_in is None) for where, bucket in memory.wheel.buckets.items()
            ],
            pending=memory.pending.encode(),
            known=encode_known(memory.known),
            activated=encode_activated(memory.activated),
            cancelled=encode_cancelled(memory.cancelled),
            subscriptions=memory.subscriptions,
            known_copies=encode_copies(memory.known),
            activated_copies=encode_activated_copies(memory.activated),
            uses=memory.uses.encode(),
            accepted=memory.history.open,
            left_out=encode_left_out(memory.left_out),
            forwarded=memory.forwarded.encode(),
        )
        return [self._entry(_SNAPSHOT_PROPERTIES, part) for part in whole.encode(self.entries)]

    def inherit(self, read: Memory) -> None:
        """Learn from the journal's tail which arrivals may come again, and keep all else."""
        memory = self.memory
        memory.known, memory.activated = read.known, read.activated
        memory.cancelled = read.cancelled

    def forget_inherited(self) -> None:
        """Forget what only matters while arrivals of an earlier term may come again."""
        self.memory.known = {}
        self.memory.activated = {}
        self.memory.cancelled = set()

    def _send(self, command: Send, now_ms: int) -> Outcome:
        if command.identity is None:
            item = command.items[0]
            size_bytes = len(item.body) + len(item.properties)
            if size_bytes > self._message_bytes_max:
                description = (
                    f"The message has {size_bytes} bytes; the limit of '{self.entity.path}' is "
                    f"{self._message_bytes_max}."
                )
                return Outcome(self._bury(item, now_ms, TOO_LARGE_REASON, description))
        publications: list[Publication] = []
        numbers: list[int] = []
        identity = stamp.NO_IDENTITY
        for index, item in enumerate(command.items):
            known = None
            digest = self._digest(item) if self._detects else None
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
                    publications += self._again(item, identity, known, now_ms)
                continue
            if item.source is not None and self._came_before(item.source, command.identity):
                numbers.append(0)  # nobody waits for it
                continue
            if digest is not None:
                first = self.memory.history.find(digest, now_ms)
                if first is not None:
                    numbers.append(first)
                    self.duplicates += 1
                    continue
            number = self._next(self._partition(item))
            numbers.append(number)
            if digest is not None:
                self.memory.history.accept(digest, number, now_ms)
                self._accepted += 1
            if item.scheduled_ms is not None and item.scheduled_ms > now_ms:
                hashed = identity_hash(identity)
                self.memory.pending.add(number, item.scheduled_ms, hashed)
                publications.append(self._waiting(item, identity, number, now_ms))
            else:
                enqueued_ms = self._enqueued(now_ms)
                if self._fanout is None:
                    publications.append(self._sent(item, identity, number, enqueued_ms))
                else:
                    publications += self._fanned(item, identity, number, enqueued_ms)
        if command.reply_to is None:
            return Outcome(publications)
        return Outcome(publications, Answer(command.reply_to, reply.encode_done(numbers)))

    def _came_before(self, source: bytes, identity: bytes | None) -> bool:
        """Whether a message was forwarded to here before; from now on it was."""
        assert identity is not None, "only envelopes have sources"
        forwarded = self.memory.forwarded
        if forwarded.has(source, identity):
            self.forwarded_again += 1
            return True
        forwarded.note(source, identity)
        return False

    def _digest(self, item: Item) -> bytes | None:
        """Return what a message is known by; one without an id has no duplicates."""
        if item.digest is None or not self._is_partitioned:
            return item.digest
        return with_key(item.digest, item.key)

    def _known_native(self, identity: bytes, now_ms: int) -> Known | None:
        """Return what the journal knows of a native message that comes again.

        Another one of its id may come, too, but not within the window.
        """
        known = self.memory.known.get(identity)
        if known is None or known.enqueued_ms is None:
            return known
        return known if now_ms - known.enqueued_ms < self._window_ms else None

    def _stamp_of(self, item: Item, at_ms: int) -> bytes:
        """Return the field that tells a successor what was accepted."""
        digest = self._digest(item) if self._detects else None
        return b"" if digest is None else stamp.accepted(digest, at_ms)

    def _again(
        self, item: Item, identity: bytes, known: Known, now_ms: int
    ) -> Sequence[Publication]:
        """Publish once more what the journal knows but the broker may have lost."""
        if known.enqueued_ms is not None and self._fanout is not None:
            return self._fanned(item, identity, known.number, known.enqueued_ms, known)
        if known.enqueued_ms is not None:
            return (self._sent(item, identity, known.number, known.enqueued_ms),)
        if self.memory.pending.matches(known.number, identity_hash(identity)):
            return (self._waiting(item, identity, known.number, now_ms),)
        return ()

    def _used(self, command: Used, now_ms: int) -> Outcome:
        for key, age_ms in command.used:
            self.memory.uses.tell(self.entity, command.bridge, key, age_ms, now_ms)
        answer = None
        if command.reply_to is not None:
            answer = Answer(command.reply_to, reply.encode_done(()))
        return Outcome((self.note_uses(),), answer)

    def _cancel(self, command: Cancel) -> Outcome:
        pending = self.memory.pending
        answer = None
        if command.identity not in self.memory.cancelled:
            missing = next((each for each in command.numbers if each not in pending), None)
            if missing is not None:
                return Outcome((), self._refusal(command.reply_to, missing))
            for number in command.numbers:
                pending.remove(number)
        if command.reply_to is not None:
            answer = Answer(command.reply_to, reply.encode_done(()))
        # A cancel that the journal knows is written once more: the broker may have lost it.
        properties = journal.entry_properties(journal.CANCEL, item_identity(command.identity, 0))
        entry = self._entry(properties, journal.encode_cancel(command.numbers))
        return Outcome((entry,), answer)

    def _refusal(self, reply_to: ReplyTo | None, number: int) -> Answer | None:
        if reply_to is None:
            return None
        description = (
            f"The scheduled message with SequenceNumber = {number} does not exist in "
            f"'{self.entity.path}', or is no longer scheduled."
        )
        return Answer(reply_to, reply.encode_refused(MessageNotFound.condition, description))

    def _sent(self, item: Item, identity: bytes, number: int, enqueued_ms: int) -> Publication:
        ttl_ms = self._ttl_ms(item.ttl_ms)
        fields = stamp.active(number, enqueued_ms, identity, ttl_ms)
        if self._detects:
            fields += self._stamp_of(item, enqueued_ms)
        if item.ttl_ms is not None:
            fields += stamp.OWN_TTL
        properties = stamp.put(item.properties, fields, ttl_ms)
        return self._publication(self._active, "", properties, item.body)

    def _fanned(
        self,
        item: Item,
        identity: bytes,
        number: int,
        enqueued_ms: int,
        known: Known | None = None,
    ) -> Sequence[Publication]:
        """Return what is published for a message of a topic."""
        ttl_ms = self._ttl_ms(item.ttl_ms)
        fields = stamp.active(number, enqueued_ms, identity, ttl_ms)
        if self._detects:
            fields += self._stamp_of(item, enqueued_ms)
        if item.ttl_ms is not None:
            fields += stamp.OWN_TTL
        view = MessageView(item, number=number, enqueued_ms=enqueued_ms, ttl_ms=ttl_ms)
        assert self._fanout is not None
        return self._counted(
            self._fanout.publications(view, identity, fields, known, self.memory.known)
        )

    def _activated(
        self,
        waiting: stamp.Waiting,
        body: bytes,
        number: int,
        enqueued_ms: int,
        known: Known | None = None,
    ) -> Sequence[Publication]:
        ttl_ms = self._ttl_ms(waiting.ttl_ms)
        fields = stamp.activated(number, enqueued_ms, waiting.identity, ttl_ms, waiting.number)
        if waiting.ttl_ms is not None:
            fields += stamp.OWN_TTL
        if self._fanout is not None:
            item = Item(waiting.properties, body, waiting.ttl_ms)
            view = MessageView(item, number=number, enqueued_ms=enqueued_ms, ttl_ms=ttl_ms)
            return self._counted(
                self._fanout.publications(view, waiting.identity, fields, known, self.memory.known)
            )
        properties = stamp.put(waiting.properties, fields, ttl_ms)
        return (self._publication(self._active, "", properties, body),)

    def _waiting(self, item: Item, identity: bytes, number: int, now_ms: int) -> Publication:
        memory = self.memory
        assert item.scheduled_ms is not None
        where = place(item.scheduled_ms, now_ms)
        memory.wheel.stored(where)
        memory.average_bytes += (len(item.body) + len(item.properties) - memory.average_bytes) // 16
        fields = stamp.waiting(number, identity, item.scheduled_ms, item.ttl_ms) + self._copy
        if self._detects:
            fields += self._stamp_of(item, now_ms)
        bucket = names.bucket(self.entity.path, where.level, where.slot)
        return self._publication("", bucket, stamp.put(item.properties, fields), item.body)

    def _bury_expired(self, item: Item, now_ms: int) -> Sequence[Publication]:
        if self._fanout is not None:
            view = self._view_of_dead(item, now_ms)
            expired = self._fanout.expired(view, EXPIRED_REASON, EXPIRED_DESCRIPTION)
            return self._counted(expired)
        entity = self.entity
        if isinstance(entity, Queue) and entity.dead_lettering_on_message_expiration:
            return self._bury(item, now_ms, EXPIRED_REASON, EXPIRED_DESCRIPTION)
        number = self._next(self._partition(item))
        fields = stamp.active(number, self._enqueued(now_ms), stamp.NO_IDENTITY, 0)
        return (self._entry(stamp.put(item.properties, fields), item.body),)

    def _view_of_dead(self, item: Item, now_ms: int) -> MessageView:
        number = self._next(self._partition(item))
        return MessageView(item, number=number, enqueued_ms=self._enqueued(now_ms), ttl_ms=None)

    def _bury(
        self, item: Item, now_ms: int, reason: str, description: str
    ) -> Sequence[Publication]:
        if self._fanout is not None:
            view = self._view_of_dead(item, now_ms)
            return self._counted(self._fanout.buried(view, reason, description))
        number = self._next(self._partition(item))
        fields = stamp.active(number, self._enqueued(now_ms), stamp.NO_IDENTITY, None)
        fields += encode_fields(
            {
                headers.DEAD_LETTER_REASON: text(reason),
                headers.DEAD_LETTER_ERROR_DESCRIPTION: text(description),
                headers.MOVED: text(self._dead),
            }
        )
        properties = stamp.put(item.properties, fields + self._copy_dead)
        return (self._publication("", self._dead, properties, item.body),)

    def _entry(self, properties: bytes, body: bytes) -> Publication:
        return self._publication("", self._journal, properties, body)

    def _counted(self, publications: Sequence[Publication]) -> Sequence[Publication]:
        self.entries += len(publications)
        self.bytes += sum([len(each.properties) + len(each.body) for each in publications])
        return publications

    def _publication(
        self, exchange: str, routing_key: str, properties: bytes, body: bytes
    ) -> Publication:
        self.entries += 1
        self.bytes += len(properties) + len(body)
        return Publication(exchange, routing_key, properties, body)

    def _next(self, partition: int) -> int:
        counters = self.memory.counters
        number = numbering.successor(counters[partition], is_partitioned=self._is_partitioned)
        counters[partition] = number
        return number

    def _partition(self, item: Item) -> int:
        if not self._is_partitioned:
            return 0
        if item.key is not None:
            return numbering.partition_for_key(item.key)
        self._turn = (self._turn + 1) % numbering.PARTITION_COUNT
        return self._turn

    def _enqueued(self, now_ms: int) -> int:
        """Return the time of now, never before one that was given already."""
        self.memory.enqueued_ms = enqueued_ms = max(self.memory.enqueued_ms, now_ms)
        return enqueued_ms

    def _ttl_ms(self, own_ms: int | None) -> int | None:
        """Return the effective TTL, `None` for ever; RabbitMQ takes no negative one."""
        if own_ms is not None and own_ms < 0:
            own_ms = None
        ttl_ms = effective_time_to_live_ms(own_ms, self._ttl_cap_ms)
        return None if ttl_ms >= MAX_MS else ttl_ms
