"""Fan-out: a topic's subscriptions for a message, the message's numbers there, and the publishes.

    matching subscriptions  `$active`: journal and the subscriptions' queues, in one publish; in
                            parts when they are many, each with its journal entry
    a rule with an action   `$active`: journal and one queue; the copy is a message of its own
    a filter that failed    the subscription's dead-letter queue, BCC journal; if configured
    no session id           the same, for a subscription that requires sessions
    dead letters            the subscriptions' dead-letter queues, BCC journal
    no subscription         `$active`: the journal alone; the message is gone, its number is not
    left-out subscription   nothing is published to its queue (`machine.inbox.left_out`)

Each subscription counts from 1 by itself. The counters are in the sequencer's memory, by the short
id of the subscription's incarnation (`wire.copies`): a subscription made anew begins with 1. A
counter outlasts its subscription for a while: a bridge that learns late of a definition must not
begin with 1 again.

After a crash a message that may come again has the copies that the journal knows, with the same
numbers. The journal may lack some copies of a message published in parts: they are selected anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from bridge.machine.inbox.arrival import PROPERTIES_BYTES_MAX
from bridge.machine.inbox.known import Known
from bridge.machine.inbox.left_out import Missed
from bridge.machine.inbox.publication import Publication
from bridge.model import number as numbering
from bridge.model.duration import MAX_MS
from bridge.model.entity import Subscription, Topic
from bridge.model.filters.errors import REASON, FilterException
from bridge.model.filters.rules import Failure, Match, RuleSet, Selection
from bridge.model.name import SHORT_ID_BYTES, short_id
from bridge.model.tiers import effective_time_to_live_ms
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.topology.shards import count_of, shard_of
from bridge.wire import copies, headers, stamp
from bridge.wire.basic import encode_fields, text
from bridge.wire.copies import Copies
from bridge.wire.envelope import Item
from bridge.wire.message_view import MessageView
from bridge.wire.rule_copy import changed_copy
from bridge.wire.sessions import session_id_of

FORGOTTEN_KEPT = 4_096
"""So many counters of subscriptions that do not exist are kept."""

BURIED_MAX = 50
"""So many dead-letter queues are named in one publish: their names are long."""

NO_SESSION_REASON = "Session ID is null."
NO_SESSION_DESCRIPTION = (
    "Session enabled entity doesn't allow a message whose session identifier is null."
)
"""Azure's words, "Service Bus dead-letter queues", for a topic's message without a session id."""


class Fanout:
    """The subscriptions of one topic.

    Args:
        topic: the definition.
        numbers: the last number of each subscription; updated here.
        left_out: the left-out subscriptions; updated elsewhere.
        new_id: the source of `newid()` of SQL.
    """

    def __init__(
        self,
        topic: Topic,
        numbers: dict[bytes, int],
        left_out: Mapping[bytes, Missed],
        new_id: Callable[[], UUID],
    ) -> None:
        self._new_id = new_id
        self._active = names.active_exchange(topic.path)
        self._journal = names.journal(topic.path)
        self._moved = names.moved(topic.path)
        self._subscriptions: dict[bytes, Subscription] = {}
        self._sharded: dict[bytes, Subscription] = {}
        self._gone: set[bytes] = set()
        self._rules: RuleSet[bytes] = RuleSet.of({}, new_id=new_id)
        self.numbers = numbers
        self._left_out = left_out
        self.update(topic)

    def update(self, topic: Topic) -> None:
        """Take over a changed definition; its rules apply to messages numbered from now on."""
        there = {short_id(incarnation_of(each)): each for each in topic.subscriptions}
        rules = {short: each.rules for short, each in there.items()}
        if rules != {short: each.rules for short, each in self._subscriptions.items()}:
            self._rules = RuleSet.of(rules, new_id=self._new_id)
        self._subscriptions = there
        self._sharded = {short: each for short, each in there.items() if count_of(each) > 1}
        self._gone.difference_update(there)
        self._ttl_cap_ms = topic.default_message_time_to_live_ms
        absent = [short for short in self.numbers if short not in there]
        for short in absent[:-FORGOTTEN_KEPT]:
            del self.numbers[short]

    def is_missing(self, short: bytes) -> bool:
        """Whether the definition lacks a subscription that may be there (`give_up`)."""
        is_known = short in self._subscriptions or short in self._gone
        return not is_known and len(short) == SHORT_ID_BYTES

    def give_up(self, short: bytes) -> None:
        """Note that a subscription was deleted: what is for it alone is in the journal alone."""
        self._gone.add(short)

    def publications(
        self,
        view: MessageView,
        identity: bytes,
        fields: bytes,
        known: Known | None,
        others: Mapping[bytes, Known],
    ) -> list[Publication]:
        """Return the publications of one message.

        Args:
            view: the message, with its number in the topic.
            identity: the message's identity.
            fields: the message's stamp, without copies.
            known: the journal's entry of the message, when it may have come before.
            others: the same for copies that are messages of their own, by their identities.
        """
        selection = self._select(view)
        plain = [match.subscription for match in selection.matches if match.changes is None]
        misfits = [short for short in plain if self._misses_session(view, short)]
        if misfits:
            plain = [short for short in plain if short not in misfits]
        found = self._number(plain, known)
        made = [
            self._publication(view.item, view.ttl_ms, fields, part, len(found))
            for part in _in_parts(found, copies.PART_MAX)
        ]
        for match in selection.matches:
            if match.changes is not None:
                made += self._changed(view, identity, match, others)
        for failure in selection.failures:
            made += self._failed(view, identity, failure, others)
        for short in misfits:
            own = stamp.derived(identity, short, b"session")
            made += self._without_session(view, own, short, others.get(own))
        return made

    def path_of(self, short: bytes) -> str | None:
        """Return the path of a subscription; `None`: there is none of this short id."""
        found = self._subscriptions.get(short)
        return None if found is None else found.path

    def imported(self, short: bytes, number: int) -> tuple[str, bytes]:
        """Return a subscription's path, and the header field of its one copy of a message."""
        found = self._subscriptions[short]
        return found.path, stamp.copies(copies.encode(((short, number),), 1))

    def for_one(self, item: Item, short: bytes, fields: bytes, left_ms: int | None) -> Publication:
        """Return the publication of a message for one subscription, past its rules.

        Args:
            fields: the message's stamp, with its copy.
            left_ms: what is left of its time to live.
        """
        if short not in self._left_out:
            fields += stamp.copy_to(*self._keys([short], item.properties))
        properties = stamp.put(item.properties, fields, left_ms)
        return Publication(self._active, names.JOURNAL_KEY, properties, item.body)

    def buried(
        self,
        view: MessageView,
        reason: str,
        description: str,
        identity: bytes,
        known: Known | None,
    ) -> list[Publication]:
        """Return publications that dead-letter a message in its target subscriptions."""
        matches = self._select(view).matches
        return self._bury(view, matches, reason, description, identity, known)

    def expired(self, view: MessageView, reason: str, description: str) -> list[Publication]:
        """Return the publications of an expired message: dead letters where configured."""
        wanted = [
            match
            for match in self._select(view).matches
            if self._subscriptions[match.subscription].dead_lettering_on_message_expiration
        ]
        return self._bury(view, wanted, reason, description)

    def _select(self, view: MessageView) -> Selection[bytes]:
        """Return the subscriptions for a message; a message with a target is for that alone."""
        target = view.item.target
        if target is None:
            return self._rules.select(view)
        return Selection([Match(target)] if target in self._subscriptions else [], [])

    def _number(self, shorts: Iterable[bytes], known: Known | None) -> Copies:
        """Return the copies of a message: the journal's, and new ones for other subscriptions.

        There are no new copies when the journal knows all copies that the message had.
        """
        if known is None or not known.copies:
            return tuple([(short, self._next(short)) for short in shorts])
        found, total = copies.decode(known.copies)
        if len(found) >= total:
            return found
        numbers = dict(found)
        return found + tuple([(each, self._next(each)) for each in shorts if each not in numbers])

    def _next(self, short: bytes) -> int:
        number = numbering.successor(self.numbers.get(short, 0), is_partitioned=False)
        self.numbers[short] = number
        return number

    def _publication(
        self, item: Item, ttl_ms: int | None, fields: bytes, part: Copies, total: int
    ) -> Publication:
        fields += stamp.copies(copies.encode(part, total))
        reached = [short for short, _ in part if short not in self._left_out]
        if reached:
            fields += stamp.copy_to(*self._keys(reached, item.properties))
        properties = stamp.put(item.properties, fields, ttl_ms)
        return Publication(self._active, names.JOURNAL_KEY, properties, item.body)

    def _keys(self, reached: Sequence[bytes], properties: bytes) -> list[str]:
        """Return the keys of subscriptions' queues: of each subscription the session's shard."""
        sharded = self._sharded
        if not sharded:
            return [names.copy_key(short) for short in reached]
        session_id = session_id_of(properties)
        return [
            names.copy_key(short, shard_of(sharded[short], session_id) if short in sharded else 0)
            for short in reached
        ]

    def _changed(
        self,
        view: MessageView,
        identity: bytes,
        match: Match[bytes],
        others: Mapping[bytes, Known],
    ) -> list[Publication]:
        """Return the copy that an action has changed, or a dead letter when the action fails."""
        short, rule, changes = match.subscription, match.rule_name or "", match.changes
        own = stamp.derived(identity, short, rule.encode())
        known = others.get(own)
        if known is not None and known.is_trusted:
            return []
        assert changes is not None
        try:
            item = changed_copy(view.item, rule, changes, properties_bytes_max=PROPERTIES_BYTES_MAX)
        except FilterException as error:
            return self._failed(view, identity, Failure(short, rule, str(error)), others)
        ttl_ms = view.ttl_ms
        if item.ttl_ms != view.item.ttl_ms:
            longest_ms = effective_time_to_live_ms(item.ttl_ms, self._ttl_cap_ms)
            ttl_ms = None if longest_ms >= MAX_MS else longest_ms
        changed = MessageView(item, number=view.number, enqueued_ms=view.enqueued_ms, ttl_ms=ttl_ms)
        if self._misses_session(changed, short):
            return self._without_session(changed, own, short, known)
        fields = stamp.active(view.number, view.enqueued_ms, own, ttl_ms)
        if item.ttl_ms is not None:
            fields += stamp.OWN_TTL
        return [self._publication(item, ttl_ms, fields, self._number([short], known), 1)]

    def _failed(
        self,
        view: MessageView,
        identity: bytes,
        failure: Failure[bytes],
        others: Mapping[bytes, Known],
    ) -> list[Publication]:
        """Return the dead letter for a subscription whose filter failed, if configured."""
        short = failure.subscription
        if not self._subscriptions[short].dead_lettering_on_filter_evaluation_exceptions:
            return []
        own = stamp.derived(identity, short, b"failed")
        known = others.get(own)
        if known is not None and known.is_trusted:
            return []
        found = self._number([short], known)
        return self._dead(view, own, found, REASON, failure.description)

    def _misses_session(self, view: MessageView, short: bytes) -> bool:
        """Whether a subscription requires a session id and the message has none."""
        return self._subscriptions[short].requires_session and view.system("sessionid") is None

    def _without_session(
        self, view: MessageView, own: bytes, short: bytes, known: Known | None
    ) -> list[Publication]:
        """Return the dead letter for a subscription that takes messages of sessions only."""
        if known is not None and known.is_trusted:
            return []
        found = self._number([short], known)
        return self._dead(view, own, found, NO_SESSION_REASON, NO_SESSION_DESCRIPTION)

    def _bury(
        self,
        view: MessageView,
        matches: Sequence[Match[bytes]],
        reason: str,
        description: str,
        identity: bytes = stamp.NO_IDENTITY,
        known: Known | None = None,
    ) -> list[Publication]:
        shorts = dict.fromkeys(match.subscription for match in matches)
        return self._dead(view, identity, self._number(shorts, known), reason, description)

    def _dead(
        self, view: MessageView, identity: bytes, found: Copies, reason: str, description: str
    ) -> list[Publication]:
        fields = stamp.active(view.number, view.enqueued_ms, identity, None)
        fields += encode_fields(
            {
                headers.DEAD_LETTER_REASON: text(reason),
                headers.DEAD_LETTER_ERROR_DESCRIPTION: text(description),
                headers.MOVED: text(names.DEAD_LETTER_SUFFIX),
            }
        )
        made = []
        for part in _in_parts(found, BURIED_MAX):
            dead = [
                names.dead_letter_queue(self._subscriptions[short].path)
                for short, _ in part
                if short in self._subscriptions
            ]
            all_fields = fields + stamp.copies(copies.encode(part, len(found)))
            if dead:
                all_fields += stamp.copy_to(self._moved, *dead)
            properties = stamp.put(view.item.properties, all_fields)
            made.append(Publication("", self._journal, properties, view.item.body))
        return made


def _in_parts(found: Copies, part_max: int) -> list[Copies]:
    """Return copies in one part for each publish; no copies are one part, too."""
    return [found[at : at + part_max] for at in range(0, max(len(found), 1), part_max)]
