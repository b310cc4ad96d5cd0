"""The publications of a sequencer for a message: now, until due, or as a dead letter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from bridge.machine.inbox.accepted_ids import row
from bridge.machine.inbox.arrival import MALFORMED_MESSAGE
from bridge.machine.inbox.came import TOO_LATE, TOO_LATE_DESCRIPTION, Came
from bridge.machine.inbox.fanout import Fanout
from bridge.machine.inbox.journal_entries import JournalEntries
from bridge.machine.inbox.known import Known
from bridge.machine.inbox.numbers import Numbers
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer_memory import Memory
from bridge.machine.inbox.wheel import BucketKey
from bridge.model.duration import MAX_MS
from bridge.model.entity import Queue, SendEntity, Tier, Topic
from bridge.model.name import SubQueue
from bridge.model.tiers import TIER_TIME_TO_LIVE_MAX_MS, effective_time_to_live_ms
from bridge.topology import names
from bridge.topology.shards import count_of, queue_key, shard_of
from bridge.wire import headers, stamp
from bridge.wire.basic import encode_fields, long, text
from bridge.wire.digest import with_key
from bridge.wire.envelope import Item
from bridge.wire.gaps import OWN
from bridge.wire.imported import DEFERRED
from bridge.wire.message_view import MessageView
from bridge.wire.relay_source import take_target, with_target
from bridge.wire.sessions import session_id_of

EXPIRED_REASON = "TTLExpiredException"
EXPIRED_DESCRIPTION = "The message expired and was dead lettered."


class Publications:
    """Makes the publications of one entity's messages, and adds them to the journal's count.

    Args:
        new_id: the source of `newid()` in a topic's rules; a queue needs none.

    Attributes:
        journal, numbers: as given.
        fanout: a topic's subscriptions; `None` for a queue.
    """

    def __init__(
        self,
        entity: SendEntity,
        tier: Tier,
        memory: Memory,
        journal: JournalEntries,
        numbers: Numbers,
        new_id: Callable[[], UUID] | None,
    ) -> None:
        self._memory = memory
        self.journal = self._journal = journal
        self.numbers = self._numbers = numbers
        self._active = names.active_exchange(entity.path)
        self._dead = names.dead_letter_queue(entity.path)
        self._copy = stamp.copy_to(names.journal(entity.path))
        self._copy_dead = stamp.copy_to(names.journal(entity.path), names.moved(entity.path))
        self.fanout: Fanout | None = None
        if isinstance(entity, Topic):
            assert new_id is not None, "rules may need it"
            self.fanout = Fanout(entity, memory.subscriptions, memory.left_out, new_id)
        self.update(entity, tier)

    def update(self, entity: SendEntity, tier: Tier) -> None:
        """Take over a changed definition."""
        self._entity = entity
        self._shards = count_of(entity)
        self._detects = entity.requires_duplicate_detection
        self._ttl_cap_ms = min(
            entity.default_message_time_to_live_ms, TIER_TIME_TO_LIVE_MAX_MS[tier]
        )
        if self.fanout is not None and isinstance(entity, Topic):
            self.fanout.update(entity)

    def digest(self, item: Item) -> bytes | None:
        """Return the digest that identifies a message; `None`: no id, or no duplicate detection."""
        if not self._detects or item.digest is None:
            return None
        return with_key(item.digest, item.key) if self._numbers.is_partitioned else item.digest

    def active(
        self,
        item: Item,
        identity: bytes,
        number: int,
        enqueued_ms: int,
        known: Known | None = None,
    ) -> Sequence[Publication]:
        """Return the publications of a message for now; `known`: the journal's entry of it."""
        ttl_ms = self._ttl_ms(item.ttl_ms)
        fields = stamp.active(number, enqueued_ms, identity, ttl_ms)
        if self._detects:
            fields += self._accepted(item, enqueued_ms)
        if item.ttl_ms is not None:
            fields += stamp.OWN_TTL
        if self.fanout is None:
            return (self._to_queue(item.properties, item.body, fields, ttl_ms),)
        view = MessageView(item, number=number, enqueued_ms=enqueued_ms, ttl_ms=ttl_ms)
        return self._to_subscriptions(self.fanout, view, identity, fields, known)

    def activated(
        self,
        waiting: stamp.Waiting,
        body: bytes,
        number: int,
        enqueued_ms: int,
        known: Known | None = None,
    ) -> Sequence[Publication]:
        """Return the publications of a scheduled message that is due."""
        target, properties = take_target(waiting.properties)
        ttl_ms = self._ttl_ms(waiting.ttl_ms)
        fields = stamp.activated(number, enqueued_ms, waiting.identity, ttl_ms, waiting.number)
        if waiting.ttl_ms is not None:
            fields += stamp.OWN_TTL
        if self.fanout is None:
            return (self._to_queue(properties, body, fields, ttl_ms),)
        item = Item(properties, body, waiting.ttl_ms, target=target)
        view = MessageView(item, number=number, enqueued_ms=enqueued_ms, ttl_ms=ttl_ms)
        return self._to_subscriptions(self.fanout, view, waiting.identity, fields, known)

    def imported(self, item: Item, now_ms: int, known: Known | None) -> Sequence[Publication]:
        """Return the publications of an imported message that is active, deferred or dead.

        Its TTL begins at its enqueued time, also where that is over.

        Args:
            known: the journal's entry of it, if an earlier term has published it.
        """
        said = item.imported
        assert said is not None, "an import has it"
        ttl_ms = self._ttl_ms(item.ttl_ms)
        number = said.topics_number if said.short != OWN else said.number
        fields = stamp.active(number, said.enqueued_ms, said.identity, ttl_ms) + stamp.IMPORTED
        if item.ttl_ms is not None:
            fields += stamp.OWN_TTL
        if self.accepted_row(item, now_ms):
            fields += self._accepted(item, min(said.enqueued_ms, now_ms))
        path = self._entity.path
        if self.fanout is not None:
            path, copy = self.fanout.imported(said.short, said.number)
            fields += copy
        dead, deferred = names.dead_letter_queue(path), names.deferred_queue(path)
        if said.state == DEFERRED:
            sub_queue = SubQueue.DEAD_LETTER if said.is_dead else SubQueue.NONE
            table = {
                headers.DEFERRED: text(sub_queue.value),
                headers.DELIVERED: long(said.deliveries),
                headers.MOVED: text(deferred),
            }
            if said.is_dead:
                table[headers.DEAD_LETTERED] = long(said.deliveries)
            properties = stamp.put(item.properties, fields + encode_fields(table) + self._copy_dead)
            return (self._journal.publication("", deferred, properties, item.body),)
        if said.is_dead:
            table = {
                headers.DEAD_LETTERED: long(said.deliveries),
                headers.MOVED: text(dead),
            }
            properties = stamp.put(item.properties, fields + encode_fields(table) + self._copy_dead)
            return (self._journal.publication("", dead, properties, item.body),)
        if said.deliveries:
            fields += encode_fields({headers.DELIVERED: long(said.deliveries)})
        left_ms = None if ttl_ms is None else max(said.enqueued_ms + ttl_ms - now_ms, 0)
        if self.fanout is None:
            return (self._to_queue(item.properties, item.body, fields, left_ms),)
        made = self.fanout.for_one(item, said.short, fields, left_ms)
        return self._journal.counted((made,))

    def lacks(self, short: bytes) -> bool:
        """Whether a short id names no subscription of the entity, nor the entity itself."""
        return short != OWN and (self.fanout is None or self.fanout.path_of(short) is None)

    def accepted_row(self, item: Item, now_ms: int) -> bytes:
        """Return the row of an imported message in the history of accepted ones; b"" for none.

        Its id was accepted when it was enqueued; behind the window nobody asks for it.
        """
        said = item.imported
        assert said is not None, "an import has it"
        digest = self.digest(item)
        at_ms = min(said.enqueued_ms, now_ms)
        window_ms = self._entity.duplicate_detection_history_time_window_ms
        if digest is None or now_ms - at_ms >= window_ms:
            return b""
        return row(digest, said.topics_number or said.number, at_ms)

    def scheduled(
        self,
        item: Item,
        identity: bytes,
        number: int,
        now_ms: int,
        where: BucketKey,
        mark: bytes = b"",
    ) -> Publication:
        """Return the publication of a message for later, into its bucket.

        Args:
            mark: a further header field.
        """
        self._memory.wheel.stored(where)
        properties = self._waiting(item, identity, number, now_ms, self._copy + mark)
        bucket = names.bucket(self._entity.path, where.level, where.slot)
        return self._journal.publication("", bucket, properties, item.body)

    def unplaced(
        self, item: Item, identity: bytes, number: int, now_ms: int, mark: bytes = b""
    ) -> Publication:
        """Return the publication of a message for later whose bucket is not made yet."""
        return self._journal.entry(self._waiting(item, identity, number, now_ms, mark), item.body)

    def _waiting(
        self, item: Item, identity: bytes, number: int, now_ms: int, more: bytes = b""
    ) -> bytes:
        """Return the properties of a message that waits, with more header fields."""
        memory = self._memory
        assert item.scheduled_ms is not None
        memory.average_bytes += (len(item.body) + len(item.properties) - memory.average_bytes) // 16
        fields = stamp.waiting(number, identity, item.scheduled_ms, item.ttl_ms) + more
        if item.imported is not None:
            fields += stamp.IMPORTED
            if self.accepted_row(item, now_ms):
                fields += self._accepted(item, min(item.imported.enqueued_ms, now_ms))
        elif self._detects:
            fields += self._accepted(item, now_ms)
        return stamp.put(with_target(item.properties, item.target), fields)

    def expired(self, item: Item, now_ms: int) -> Sequence[Publication]:
        """Return the publications of a message that expired before it had a number."""
        if self.fanout is not None:
            number, enqueued_ms = self._place(item, now_ms)
            view = MessageView(item, number=number, enqueued_ms=enqueued_ms, ttl_ms=None)
            expired = self.fanout.expired(view, EXPIRED_REASON, EXPIRED_DESCRIPTION)
            return self._journal.counted(expired)
        entity = self._entity
        if isinstance(entity, Queue) and entity.dead_lettering_on_message_expiration:
            return self.dead_lettered(item, now_ms, EXPIRED_REASON, EXPIRED_DESCRIPTION)
        number, enqueued_ms = self._place(item, now_ms)
        fields = stamp.active(number, enqueued_ms, stamp.NO_IDENTITY, 0)
        return (self._journal.entry(stamp.put(item.properties, fields), item.body),)

    def malformed(self, item: Item, now_ms: int, description: str) -> Sequence[Publication]:
        """Return the publications of a message that cannot be read: a dead letter."""
        return self.dead_lettered(item, now_ms, MALFORMED_MESSAGE, description)

    def dead_lettered(
        self,
        item: Item,
        now_ms: int,
        reason: str,
        description: str,
        identity: bytes = stamp.NO_IDENTITY,
        known: Known | None = None,
    ) -> Sequence[Publication]:
        """Return the publications of a message that goes to a dead-letter queue at once.

        Args:
            identity: by which a successor knows the dead letter.
            known: the journal's entry of it.
        """
        number, enqueued_ms = self._place(item, now_ms, known)
        if self.fanout is not None:
            view = MessageView(item, number=number, enqueued_ms=enqueued_ms, ttl_ms=None)
            made = self.fanout.buried(view, reason, description, identity, known)
            return self._journal.counted(made)
        fields = stamp.active(number, enqueued_ms, identity, None)
        fields += encode_fields(
            {
                headers.DEAD_LETTER_REASON: text(reason),
                headers.DEAD_LETTER_ERROR_DESCRIPTION: text(description),
                headers.MOVED: text(self._dead),
            }
        )
        properties = stamp.put(item.properties, fields + self._copy_dead)
        return (self._journal.publication("", self._dead, properties, item.body),)

    def not_first(
        self, item: Item, came: Came, identity: bytes, now_ms: int
    ) -> Sequence[Publication]:
        """Return nothing for a copy that came before, and a dead letter for one that may not have.

        The dead letter of an earlier term is published again where its queue may lack it.
        """
        own = stamp.derived(identity, b"too late")
        known = self._memory.known.get(own)
        if came is Came.AGAIN and (known is None or known.is_trusted):
            return ()
        return self.dead_lettered(item, now_ms, TOO_LATE, TOO_LATE_DESCRIPTION, own, known)

    def _to_queue(
        self, properties: bytes, body: bytes, fields: bytes, ttl_ms: int | None
    ) -> Publication:
        stamped = stamp.put(properties, fields, ttl_ms)
        return self._journal.publication(self._active, self._key(properties), stamped, body)

    def _to_subscriptions(
        self,
        fanout: Fanout,
        view: MessageView,
        identity: bytes,
        fields: bytes,
        known: Known | None,
    ) -> Sequence[Publication]:
        made = fanout.publications(view, identity, fields, known, self._memory.known)
        return self._journal.counted(made)

    def _place(self, item: Item, now_ms: int, known: Known | None = None) -> tuple[int, int]:
        """Return a message's number and enqueued time, those of the journal if it knows it."""
        if known is not None:
            assert known.enqueued_ms is not None, "a dead letter never waits"
            return known.number, known.enqueued_ms
        number = self._numbers.next(item)
        return number, self._numbers.enqueued_ms(now_ms)

    def _accepted(self, item: Item, at_ms: int) -> bytes:
        """Return the header field with the accepted digest, which a successor reads."""
        digest = self.digest(item)
        return b"" if digest is None else stamp.accepted(digest, at_ms)

    def _key(self, properties: bytes) -> str:
        """Return the routing key by which a queue's message reaches its shard, and the journal."""
        entity = self._entity
        if self._shards == 1 or not isinstance(entity, Queue):
            return ""
        return queue_key(entity, shard_of(entity, session_id_of(properties)))

    def _ttl_ms(self, own_ms: int | None) -> int | None:
        """Return the effective TTL, `None` for ever; RabbitMQ takes no negative TTL."""
        if own_ms is not None and own_ms < 0:
            own_ms = None
        ttl_ms = effective_time_to_live_ms(own_ms, self._ttl_cap_ms)
        return None if ttl_ms >= MAX_MS else ttl_ms


def waiting_of(item: Item, identity: bytes, number: int) -> stamp.Waiting:
    """Return a message that waits for its time, as if it came out of a bucket."""
    assert item.scheduled_ms is not None
    properties = with_target(item.properties, item.target)
    return stamp.Waiting(number, identity, item.scheduled_ms, item.ttl_ms, properties)
