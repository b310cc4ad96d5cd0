"""The names of an entity's resources in RabbitMQ.

A queue's active messages are in a queue of the entity's own name, so that a RabbitMQ user finds
them. The names of the other resources add a suffix that begins with `/$`. Service Bus names are not
case-sensitive and RabbitMQ's are: resource names are lower case. A name that RabbitMQ reserves (it
begins with `amq.`) is escaped; a name that would pass 255 bytes is cut, and a digest is added.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re

from bridge.model.name import SubQueue

NAME_BYTES_MAX = 255
"""RabbitMQ's limit for the name of a queue or exchange (measured on 4.0 and 4.3)."""

_SUFFIX_BYTES_MAX = 40
"""Length that is reserved for the longest suffix, buckets included."""

_KEPT_BYTES = NAME_BYTES_MAX - _SUFFIX_BYTES_MAX - 26

_LOOKS_CUT = re.compile(rf".{{{_KEPT_BYTES}}}~[0-9a-f]{{24}}")
"""A name with the form of a cut name. Such a name is cut, too, so that it equals no cut name."""

SINK = "$sb/sink"
"""Classic queue of length 0, for messages that are to be dropped."""

EXPIRED_UNNUMBERED = "$sb/lapsed"
"""Queue: messages that expired in an inbox before they had a number; a bridge returns them to the
inbox. All versions of the bridge share the queue, so it keeps its name."""

OTHER_DEATHS = "$sb/other-deaths"
"""Direct exchange: dead letters of a reason without a binding; the key is their dead-letter
queue."""

BRIDGE_QUEUES = "$sb/bridge/"
"""Prefix of the names of the bridges' own queues."""

EVENTS = "$sb/events"
"""Fanout exchange: notifications that a definition has changed and must be read again."""

ADMINISTRATION = "$sb/administration"
"""Direct exchange: requests to change entities; the key is a bridge's queue. RabbitMQ's write
permission on the exchange allows a user such requests."""

DECLARATION_FENCE = "$sb/seal"
"""Exchange without any other use: declared and deleted so that earlier changes outlast a kill of
RabbitMQ. The name is older than the term."""


BUCKET_NAMES = 256
"""Number of bucket names of one entity and wheel level."""


INBOX_SUFFIX = "/$inbox"
"""Suffix of the names of inboxes."""


def resource_base(entity: str) -> str:
    """Return the RabbitMQ name with which the names of an entity's resources begin."""
    return legal(entity.lower())


@functools.lru_cache(maxsize=4_096)
def legal(name: str) -> str:
    """Return a name that RabbitMQ accepts, with room for every suffix."""
    if name.startswith("amq."):
        name = "$" + name
    if len(name.encode()) > NAME_BYTES_MAX - _SUFFIX_BYTES_MAX or _LOOKS_CUT.fullmatch(name):
        digest = hashlib.sha256(name.encode()).hexdigest()[:24]
        name = name[:_KEPT_BYTES] + "~" + digest
    return name


def listable_key(key: str) -> str:
    """Return a routing key for a binding of a headers exchange, which ignores the key.

    RabbitMQ cannot list a binding with arguments and a `~` in its key: see `tilde-key` in
    docs/rabbitmq-faults.md. `+` replaces `~`; no name of Service Bus has a `+`.
    """
    return key.replace("~", "+")


ACTIVE_SUFFIX = "/$active"
DLX_SUFFIX = "/$dlx"
DEAD_LETTER_SUFFIX = "/$deadletterqueue"
DEFERRED_SUFFIX = "/$deferred"
SESSIONS_SUFFIX = "/$sessions"
SHARD_SUFFIX = "/$shard/"
JOURNAL_SUFFIX = "/$journal"
HISTORY_SUFFIX = "/$history"
MOVED_SUFFIX = "/$moved"
SETTLED_SUFFIX = "/$settled"
BUCKETS_SUFFIX = "/$scheduled/"
TRANSFER_SUFFIX = "/$transfer"


def front(entity: str) -> str:
    """Exchange: the front exchange, to which messages for the entity are published."""
    return resource_base(entity)


def inbox(entity: str) -> str:
    """Queue: the sent messages that have no number yet."""
    return resource_base(entity) + INBOX_SUFFIX


def is_inbox(queue: str) -> bool:
    """Whether a queue is an inbox."""
    return queue.endswith(INBOX_SUFFIX)


def active_exchange(entity: str) -> str:
    """Exchange: the one to which the sequencer publishes numbered messages."""
    return resource_base(entity) + ACTIVE_SUFFIX


def active_queue(entity: str, shard: int = 0) -> str:
    """Queue: the entity's active messages, of one shard (`topology.shards`)."""
    base = resource_base(entity)
    return f"{base}{SHARD_SUFFIX}{shard}" if shard else base


def received(entity: str, sub_queue: SubQueue) -> str:
    """Queue: what receivers of the entity, or of a dead-letter sub-queue, receive from."""
    if sub_queue is SubQueue.DEAD_LETTER:
        return dead_letter_queue(entity)
    if sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
        return transfer_dead_letter_queue(entity)
    return active_queue(entity)


JOURNAL_KEY = "j"
"""Routing key of a topic's journal in its `$active` exchange; the keys of subscriptions have 8
characters or more."""


COPY_KEY_LENGTH = 8


def copy_key(short: bytes, shard: int = 0) -> str:
    """Return the key of a subscription's queue in its topic's `$active`.

    The key is 8 letters, digits, `-` or `_`; for a shard other than the first, `.` and its number
    follow.
    """
    key = base64.urlsafe_b64encode(short).decode()
    return f"{key}.{shard}" if shard else key


def journal(entity: str) -> str:
    """Stream: every number that the entity gave, in order, with its message."""
    return resource_base(entity) + JOURNAL_SUFFIX


def history(entity: str) -> str:
    """Stream: digests of the accepted messages' ids, with duplicate detection only."""
    return resource_base(entity) + HISTORY_SUFFIX


def moved(entity: str) -> str:
    """Stream: numbered messages that were dead-lettered, deferred or changed, in order."""
    return resource_base(entity) + MOVED_SUFFIX


def settled(queue: str) -> str:
    """Stream: the numbers that have left a queue of RabbitMQ, an active or a dead-letter one."""
    return queue + SETTLED_SUFFIX


def dead_letter_exchange(entity: str) -> str:
    """Headers exchange: routes a dead letter by its reason."""
    return resource_base(entity) + DLX_SUFFIX


def dead_letter_queue(entity: str) -> str:
    """Queue: the entity's dead-letter sub-queue."""
    return resource_base(entity) + DEAD_LETTER_SUFFIX


def deferred_queue(entity: str) -> str:
    """Queue: the deferred messages of the entity and of its dead-letter queue."""
    return resource_base(entity) + DEFERRED_SUFFIX


def transfer_queue(entity: str) -> str:
    """Queue: messages for other entities that the entity's transactions have committed."""
    return resource_base(entity) + TRANSFER_SUFFIX


def transfer_dead_letter_queue(entity: str) -> str:
    """Queue: what the targets of the entity's transactions have not taken."""
    return transfer_queue(entity) + DEAD_LETTER_SUFFIX


def sessions_queue(entity: str, shard: int = 0) -> str:
    """Queue: the states of a shard's sessions; the queue's consumer owns the shard's messages."""
    return active_queue(entity, shard) + SESSIONS_SUFFIX


def bucket(entity: str, level: int, slot: int) -> str:
    """Queue: scheduled messages whose time falls in slot `slot` of wheel level `level`.

    Names are used again: RabbitMQ never forgets a queue's name (each new one costs one of Erlang's
    5,000,000 atoms for good; measured on 4.0 and 4.3). Two slots that share a name are far
    apart: 8.5 minutes on the finest level, whose buckets reach 2 minutes ahead.
    """
    return f"{bucket_prefix(entity)}{level}-{slot % BUCKET_NAMES}"


def bucket_prefix(entity: str) -> str:
    """Return the prefix of all bucket names of an entity."""
    return resource_base(entity) + BUCKETS_SUFFIX


SUBSCRIPTIONS = "/subscriptions/"


def front_path(path: str) -> str:
    """Return the path to which an entity's messages are sent: a subscription's topic, or itself."""
    at = path.lower().rfind(SUBSCRIPTIONS)
    return path if at < 0 else path[:at]


def base_of(resource: str) -> str:
    """Return the beginning that the names of all resources of an entity have (`resource_base`)."""
    return resource.partition("/$")[0]


def exchanges_of(entity: str) -> tuple[str, ...]:
    """Return the names of all exchanges that an entity may have."""
    return front(entity), active_exchange(entity), dead_letter_exchange(entity)


def change_lock(entity: str) -> str:
    """Queue: the change lock of an entity, an exclusive queue of the process that changes it."""
    return "$sb/change/" + hashlib.sha256(entity.lower().encode()).hexdigest()[:24]


def bridge_queue(instance: bytes) -> str:
    """Queue: the requests to one bridge process, from other bridges and from clients."""
    return BRIDGE_QUEUES + instance.hex()


def instance_of(bridge_queue: str) -> bytes:
    """Return the instance id of the bridge process that owns a bridge queue."""
    return bytes.fromhex(bridge_queue.removeprefix(BRIDGE_QUEUES))


def declaration_fence(owner: bytes) -> str:
    """Queue: declared so that earlier declarations outlast a kill of RabbitMQ, then deleted."""
    return f"{DECLARATION_FENCE}/{owner.hex()}"
