"""Shards: a session entity's active messages in several queues, by a digest of the session id.

Each shard has an owner of its own among the bridges. The number of shards is fixed when the entity
is created (`session_shards` of its definition). Shard 0 has the queue names of an entity without
shards. A message without a session id, which the owner dead-letters, is in shard 0.

The digest is that of the folded id, or of the id as it is spelt in an entity that was made before
ids were folded (`folds_session_ids`). Within a shard ids are folded in either case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from bridge.model import entity as model
from bridge.model.entity import EntityT
from bridge.model.session_id import FoldedId, fold
from bridge.topology import names


class SessionKey(NamedTuple):
    """What tells a session of an entity from its other sessions.

    Attributes:
        shard: the session's shard.
        folded: the session's folded id.
    """

    shard: int
    folded: FoldedId


def session_key(entity: model.ReceiveEntity, session_id: str) -> SessionKey:
    """Return the key of the session that an id names, in any case.

    Two spellings are two sessions only in an entity with several shards that was made before ids
    were folded, where they may be in two shards.
    """
    return SessionKey(shard_of(entity, session_id), fold(session_id))


def shard_of(entity: model.ReceiveEntity, session_id: str | None) -> int:
    """Return a session's shard: the first 8 bytes of its SHA-256 (UTF-8, big-endian), modulo."""
    count = count_of(entity)
    if count == 1 or session_id is None:
        return 0
    hashed: str = fold(session_id) if entity.folds_session_ids else session_id
    raw = hashed.encode(errors="surrogateescape")
    return int.from_bytes(hashlib.sha256(raw).digest()[:8], "big") % count


def spells_sessions(entity: model.ReceiveEntity) -> bool:
    """Whether two spellings of one session id may be two sessions of an entity."""
    return count_of(entity) > 1 and not entity.folds_session_ids


def count_of(entity: model.Entity) -> int:
    """Return the number of an entity's shards: 1 without sessions."""
    if isinstance(entity, model.Topic) or not entity.requires_session:
        return 1
    return entity.session_shards


def with_shards(entity: EntityT, count: int) -> EntityT:
    """Return an entity with `count` shards, if it has sessions."""
    if isinstance(entity, model.Queue | model.Subscription) and entity.requires_session:
        return replace(entity, session_shards=count)
    return entity


def active_queues(entity: model.ReceiveEntity) -> list[str]:
    """Return the queues of an entity's active messages, in the order of its shards."""
    return [names.active_queue(entity.path, shard) for shard in range(count_of(entity))]


def message_queues(entity: model.Entity) -> list[str]:
    """Return the queues of an entity's numbered messages, except buckets.

    The queues of a topic are those of its subscriptions.
    """
    if isinstance(entity, model.Topic):
        return [name for each in entity.subscriptions for name in message_queues(each)]
    others = names.dead_letter_queue(entity.path), names.deferred_queue(entity.path)
    return [*active_queues(entity), *others]


def queue_key(queue: model.Queue, shard: int) -> str:
    """Return the routing key of a queue's shard in its `$active`.

    With a single shard the exchange is a fanout, which ignores the key.
    """
    return "" if count_of(queue) == 1 else str(shard)


def queues_by_key(queue: model.Queue) -> dict[str, str]:
    """Return the queues that a queue's `$active` leads to beside the journal, by key."""
    return {queue_key(queue, at): name for at, name in enumerate(active_queues(queue))}


def in_order_of_choice(bridges: Iterable[bytes], queue: str) -> list[bytes]:
    """Return bridges in the order of preference to own a queue (rendezvous hashing).

    Every bridge computes the same order, and one bridge more or less moves few queues.
    """
    return sorted(bridges, key=lambda bridge: preference(bridge, queue), reverse=True)


def preference(bridge: bytes, queue: str) -> bytes:
    """Return a digest: the bridge with the highest one is the first in the order of a queue."""
    return hashlib.sha256(bridge + queue.encode()).digest()
