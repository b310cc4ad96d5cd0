"""Idleness of temporary entities (AutoDeleteOnIdle): which operations count as use, and when.

**Theory.** The leader of a queue or topic decides for it and its subscriptions. The leader sees the
sends itself. Of all other uses every bridge tells the leader (`machine.usage.use_reports`): at once
at the first use, then a minute later at the earliest, with the age of the last use. So a use that a
bridge has not told lies within a minute of its last report; if that bridge is gone, the entity
counts as used until the end of that minute. The leader looks for RabbitMQ consumers: from a look
that finds some to the first that finds none the entity is in use. Any time without a look for
`DOUBT_MS` (a start, no contact) counts as use.

Before a deletion every bridge is asked. This module does not wait and does not know the time.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import replace
from enum import Enum

from bridge.machine.usage.use_reports import REPORT_MS
from bridge.model.duration import is_forever
from bridge.model.entity import Entity, EntityStatus, Queue, ReceiveEntity, SendEntity, Topic
from bridge.model.forwarding import forwards
from bridge.model.name import SHORT_ID_BYTES, short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire.sections import MalformedEntry

LOOK_MS = 30_000
"""Interval of the looks for consumers, and for bridges that are gone."""

DOUBT_MS = 90_000
"""A time of this length without a look counts as use."""


class Use(Enum):
    """An operation or state that may keep an entity from being idle."""

    SEND = "send"
    SCHEDULED = "a scheduled message waits"
    RECEIVE = "receive, settle, renew"
    PEEK = "peek"
    UPDATE = "update"
    RULE = "new rule"
    FORWARD = "forwards"


OF_QUEUE = frozenset({Use.SEND, Use.SCHEDULED, Use.RECEIVE, Use.PEEK, Use.UPDATE, Use.FORWARD})
OF_TOPIC = frozenset({Use.SEND, Use.SCHEDULED, Use.UPDATE})
OF_SUBSCRIPTION = frozenset({Use.RECEIVE, Use.PEEK, Use.UPDATE, Use.RULE, Use.FORWARD})
"""Uses that count (Azure, message expiration: temporary entities). A use of a subscription counts
for its topic, too; waiting messages count for nothing.
"""


def counts(entity: Entity, use: Use) -> bool:
    """Whether a use keeps an entity from being idle."""
    if isinstance(entity, Queue):
        return use in OF_QUEUE
    return use in (OF_TOPIC if isinstance(entity, Topic) else OF_SUBSCRIPTION)


def key_of(entity: Entity) -> bytes:
    """Return the key of an entity: a later entity of its name has another key."""
    return short_id(incarnation_of(entity))


def is_temporary(entity: Entity) -> bool:
    """Whether an entity is deleted when it is idle; one that a migration holds is not."""
    return not is_forever(entity.auto_delete_on_idle_ms) and not entity.held


def temporaries(front: SendEntity) -> list[Entity]:
    """Return the temporary entities among a queue, or among a topic and its subscriptions."""
    return [each for each in with_below(front) if is_temporary(each)]


def watched(front: SendEntity) -> list[ReceiveEntity]:
    """Return the entities whose consumers keep a temporary entity from being deleted."""
    if isinstance(front, Queue):
        return [front] if is_temporary(front) else []
    if is_temporary(front):
        return list(front.subscriptions)
    return [each for each in front.subscriptions if is_temporary(each)]


def changed(before: SendEntity, after: SendEntity) -> list[Entity]:
    """Return the entities updated between two definitions; the deletion of idle ones is no use.

    A new or deleted subscription is an operation on its topic.
    """
    old, new = ({key_of(each): each for each in with_below(front)} for front in (before, after))
    found = [each for key, each in new.items() if _is_updated(old.get(key), each)]
    is_taken = any(
        key not in new and each.status is not EntityStatus.DELETING for key, each in old.items()
    )
    return [after, *found] if is_taken and after not in found else found


def _is_updated(before: Entity | None, after: Entity) -> bool:
    if before is None:
        return True
    if after.status is EntityStatus.DELETING:
        return False
    return _bare(before) != _bare(after)


def _bare(entity: Entity) -> Entity:
    return replace(entity, subscriptions=()) if isinstance(entity, Topic) else entity


def with_below(front: SendEntity) -> list[Entity]:
    """Return a queue, or a topic and its subscriptions."""
    return [front, *front.subscriptions] if isinstance(front, Topic) else [front]


_ROW = struct.Struct(f">{SHORT_ID_BYTES}s{SHORT_ID_BYTES}sq")
_NOBODY, _NATIVE = bytes(SHORT_ID_BYTES), b"\xff" * SHORT_ID_BYTES
"""In place of a bridge: no bridge reported the row; or RabbitMQ reported a consumer."""

_ACCESSED = b"\xfe" * SHORT_ID_BYTES
"""In place of a bridge: when clients used the entity last, temporary or not."""


class Uses:
    """The last known uses of one queue, or of one topic and its subscriptions.

    When clients used an entity last (`accessed_ms`) is kept of each entity, the rest of temporary
    ones.

    Attributes:
        looked_ms: the time of the last look (UTC ms).
        is_doubtful: an entity was used at an unknown time.
    """

    def __init__(self) -> None:
        self.looked_ms = 0
        self.is_doubtful = False
        self._used: dict[bytes, int] = {}
        self._told: dict[tuple[bytes, bytes], int] = {}

    def note(self, front: SendEntity, entity: Entity, use: Use, at_ms: int) -> None:
        """Note a use."""
        if counts(entity, use):
            self._raise(key_of(entity), at_ms)
            if entity is not front:
                self._raise(key_of(front), at_ms)

    def note_sent(self, front_key: bytes, at_ms: int) -> None:
        """Note a message sent to the queue or topic."""
        self._raise(front_key, at_ms)

    def tell(self, front: SendEntity, bridge: bytes, key: bytes, age_ms: int, now_ms: int) -> None:
        """Take a bridge's unasked report: its clients used an entity `age_ms` ago."""
        used_ms = now_ms - max(age_ms, 0)
        known = _with_front(front, key)
        if known:
            self._told[key, _ACCESSED] = max(used_ms, self.accessed_ms(key))
        if not temporaries(front):
            self._forget_others([key_of(each) for each in with_below(front)])
            return
        for each in known:
            self._raise(each, used_ms)
            self._told[each, bridge] = now_ms

    def accessed_ms(self, key: bytes) -> int:
        """Return when clients used an entity last, as far as bridges have reported; 0: never."""
        return self._told.get((key, _ACCESSED), 0)

    def answer(self, front: SendEntity, key: bytes, age_ms: int, now_ms: int) -> None:
        """Take a bridge's answer about the last use of an entity."""
        for each in _with_front(front, key):
            self._raise(each, now_ms - max(age_ms, 0))

    def look(
        self,
        front: SendEntity,
        *,
        bridges: Collection[bytes],
        consumed: Collection[bytes],
        has_scheduled: bool,
        now_ms: int,
    ) -> None:
        """Take the findings of one look.

        Args:
            bridges: all present bridges.
            consumed: the `watched` entities that have consumers, by key.
            has_scheduled: messages wait for their time.
        """
        everything = [key_of(each) for each in with_below(front)]
        is_gap = now_ms - self.looked_ms > DOUBT_MS
        for key in everything:
            if self.is_doubtful or is_gap or key not in self._used:
                self._raise(key, now_ms)
        self.is_doubtful = False
        for entity in watched(front):
            if key_of(entity) in consumed:
                self.note(front, entity, Use.RECEIVE, now_ms)
                self._told[key_of(entity), _NATIVE] = now_ms
            elif self._told.pop((key_of(entity), _NATIVE), None) is not None:
                self.note(front, entity, Use.RECEIVE, now_ms)
        self._note_standing(front, has_scheduled, now_ms)
        self._mind_told(bridges, now_ms)
        self._forget_others(everything)
        self.looked_ms = now_ms

    def idle(self, front: SendEntity, now_ms: int) -> list[Entity]:
        """Return the entities that may be deleted now, once every bridge has been asked.

        An idle topic is returned alone: its subscriptions go with it.
        """
        if self.is_idle(front, now_ms):
            return [front]
        return [each for each in temporaries(front) if self.is_idle(each, now_ms)]

    def is_idle(self, entity: Entity, now_ms: int) -> bool:
        """Whether an entity is temporary, and was not used for its time."""
        used_ms = self._used.get(key_of(entity))
        is_over = used_ms is not None and now_ms - used_ms >= entity.auto_delete_on_idle_ms
        return is_over and is_temporary(entity)

    def next_ms(self, front: SendEntity) -> int:
        """Return the earliest time at which an entity may be idle, or a look is due."""
        ends = [
            self._used.get(key_of(each), 0) + each.auto_delete_on_idle_ms
            for each in temporaries(front)
        ]
        return min([self.looked_ms + LOOK_MS, *ends])

    def encode(self) -> bytes:
        """Return the rows for a successor."""
        if not self.looked_ms and not self._used and not self._told:
            return b""
        rows = [(_NOBODY, _NOBODY, self.looked_ms)]
        rows += [(key, _NOBODY, at_ms) for key, at_ms in self._used.items()]
        rows += [(*told, at_ms) for told, at_ms in self._told.items()]
        return b"".join([_ROW.pack(*row) for row in rows])

    @classmethod
    def decode(cls, raw: bytes) -> Uses:
        """Read the bytes of `encode`; no bytes mean no known use."""
        uses = cls()
        if len(raw) % _ROW.size:
            raise MalformedEntry(f"{len(raw)} bytes of last uses")
        rows: Iterable[tuple[bytes, bytes, int]] = _ROW.iter_unpack(raw)
        for key, bridge, at_ms in rows:
            if key == _NOBODY:
                uses.looked_ms = at_ms
            elif bridge == _NOBODY:
                uses._used[key] = at_ms
            else:
                uses._told[key, bridge] = at_ms
        return uses

    def _raise(self, key: bytes, at_ms: int) -> None:
        if at_ms > self._used.get(key, 0):
            self._used[key] = at_ms

    def _note_standing(self, front: SendEntity, has_scheduled: bool, now_ms: int) -> None:
        """Note uses that last: scheduled messages and forwarding."""
        if has_scheduled:
            self._raise(key_of(front), now_ms)
        for each in with_below(front):
            if forwards(each):
                self.note(front, each, Use.FORWARD, now_ms)

    def _mind_told(self, bridges: Collection[bytes], now_ms: int) -> None:
        """End the minute behind each bridge's last report: by time, or when the bridge is gone."""
        for (key, bridge), at_ms in list(self._told.items()):
            if bridge in (_NATIVE, _ACCESSED):
                continue
            if bridge not in bridges:
                self._raise(key, min(now_ms, at_ms + REPORT_MS))
                del self._told[key, bridge]
            elif now_ms - at_ms > 2 * REPORT_MS:
                del self._told[key, bridge]

    def _forget_others(self, keys: Collection[bytes]) -> None:
        """Forget entities that are gone."""
        there = frozenset(keys)
        self._used = {key: at_ms for key, at_ms in self._used.items() if key in there}
        self._told = {each: at_ms for each, at_ms in self._told.items() if each[0] in there}


def _with_front(front: SendEntity, key: bytes) -> list[bytes]:
    """Return the keys of the entities that count as used with an entity: itself and its topic.

    The result is empty if the entity is neither the queue or topic nor one of its subscriptions.
    """
    own = key_of(front)
    if key == own:
        return [key]
    is_there = isinstance(front, Topic) and any(key_of(each) == key for each in front.subscriptions)
    return [key, own] if is_there else []
