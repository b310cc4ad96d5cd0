"""What each resource of an entity is called: one reversible function, in both directions.

A queue's active messages wait in a queue of the entity's own name, so that a RabbitMQ user finds
them; everything else hangs below it, behind `/$`. Service Bus names are not case-sensitive and
RabbitMQ's are: resource names are lower case. A name that RabbitMQ reserves (`amq.` in front) or
that would pass 255 bytes is escaped or cut to a digest.
"""

from __future__ import annotations

import base64
import hashlib
import re

NAME_BYTES_MAX = 255
"""RabbitMQ's limit for the name of a queue or exchange (measured on 3.10, 4.0 and 4.3)."""

_SUFFIX_BYTES_MAX = 40
"""Room that the longest suffix of ours needs, buckets included."""

_KEPT_BYTES = NAME_BYTES_MAX - _SUFFIX_BYTES_MAX - 26

_LOOKS_CUT = re.compile(rf".{{{_KEPT_BYTES}}}~[0-9a-f]{{24}}")
"""A name as long as a cut one, with what looks like its digest: it is cut, too."""

SINK = "$sb/sink"
"""Where what is to be dropped goes: a classic queue of length 0."""

EXPIRED_UNNUMBERED = "$sb/lapsed"
"""What expired in an inbox before it was numbered, on its way back; the queue's name is older."""

OTHER_DEATHS = "$sb/other-deaths"
"""Direct exchange: dead letters of a reason that no binding names, by their dead-letter queue."""

BRIDGE_QUEUES = "$sb/bridge/"
"""What the names of the bridges' own queues begin with."""

EVENTS = "$sb/events"
"""Fanout exchange: a definition has changed, read it again."""

ADMINISTRATION = "$sb/administration"
"""Direct exchange: who may write to it may ask a bridge, by its queue, to change entities."""

DECLARATION_FENCE = "$sb/seal"
"""Exchange that nobody uses: declared and deleted so that the changes before it last; its name is
older."""


BUCKET_NAMES = 256
"""Names of buckets of one entity and level."""


INBOX_SUFFIX = "/$inbox"
"""What the names of inboxes end with."""


def resource_base(entity: str) -> str:
    """Return the RabbitMQ name that an entity's resources begin with."""
    return legal(entity.lower())


def legal(name: str) -> str:
    """Return a name as RabbitMQ takes it, with room for every suffix."""
    if name.startswith("amq."):
        name = "$" + name
    if len(name.encode()) > NAME_BYTES_MAX - _SUFFIX_BYTES_MAX or _LOOKS_CUT.fullmatch(name):
        digest = hashlib.sha256(name.encode()).hexdigest()[:24]
        name = name[:_KEPT_BYTES] + "~" + digest
    return name


def listable_key(key: str) -> str:
    """Return a routing key for a binding whose arguments, and not its key, say what it takes.

    RabbitMQ cannot list a binding with arguments and a `~` in its key: see `tilde-key` of
    docs/rabbitmq-faults.md. `+` is in no name of Service Bus's.
    """
    return key.replace("~", "+")


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


def front(entity: str) -> str:
    """Exchange: the one that what is sent to the entity goes to."""
    return resource_base(entity)


def inbox(entity: str) -> str:
    """Queue: what was sent and has no number yet."""
    return resource_base(entity) + INBOX_SUFFIX


def is_inbox(queue: str) -> bool:
    """Whether a queue is an inbox."""
    return queue.endswith(INBOX_SUFFIX)


def active_exchange(entity: str) -> str:
    """Exchange: where the sequencer publishes numbered messages."""
    return resource_base(entity) + "/$active"


def active_queue(entity: str, shard: int = 0) -> str:
    """Queue: the entity's active messages, of one shard (`topology.shards`)."""
    base = resource_base(entity)
    return f"{base}{SHARD_SUFFIX}{shard}" if shard else base


JOURNAL_KEY = "j"
"""Routing key of a topic's journal in its `$active`; those of subscriptions have 8 characters."""


COPY_KEY_LENGTH = 8


def copy_key(short: bytes, shard: int = 0) -> str:
    """Return the key of a subscription's queue in its topic's `$active`.

    8 letters, digits, `-` or `_`; behind that the number of a shard other than the first.
    """
    key = base64.urlsafe_b64encode(short).decode()
    return f"{key}.{shard}" if shard else key


def journal(entity: str) -> str:
    """Stream: every number that was given, in order."""
    return resource_base(entity) + JOURNAL_SUFFIX


def history(entity: str) -> str:
    """Stream: digests of what was accepted, where duplicates are detected."""
    return resource_base(entity) + HISTORY_SUFFIX


def moved(entity: str) -> str:
    """Stream: what was dead-lettered, set aside or changed after it had its number, in order."""
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
    """Queue: what was set aside, of the entity and of its dead-letter sub-queue."""
    return resource_base(entity) + DEFERRED_SUFFIX


def sessions_queue(entity: str, shard: int = 0) -> str:
    """Queue: states of a shard's sessions; its consumer owns the shard's messages."""
    return active_queue(entity, shard) + SESSIONS_SUFFIX


def bucket(entity: str, level: int, slot: int) -> str:
    """Queue: scheduled messages whose time falls in slot `slot` of wheel level `level`.

    Names come round again: RabbitMQ never forgets a queue's name (each new one costs an atom of
    Erlang's for good, of 5,000,000; measured on 3.10, 4.0 and 4.3). Two slots that share a name are
    far apart: 8.5 minutes on the finest level, whose buckets reach 2 minutes ahead.
    """
    return f"{bucket_prefix(entity)}{level}-{slot % BUCKET_NAMES}"


def bucket_prefix(entity: str) -> str:
    """What all bucket names of an entity begin with."""
    return resource_base(entity) + BUCKETS_SUFFIX


_SUBSCRIPTIONS = "/subscriptions/"


def front_path(path: str) -> str:
    """Return the path of what messages for an entity are sent to: a subscription's topic."""
    at = path.lower().rfind(_SUBSCRIPTIONS)
    return path if at < 0 else path[:at]


def exchanges_of(entity: str) -> tuple[str, ...]:
    """Return the names of all exchanges that an entity may have."""
    return front(entity), active_exchange(entity), dead_letter_exchange(entity)


def change_lock(entity: str) -> str:
    """Queue: exclusive to whoever changes an entity now."""
    return "$sb/change/" + hashlib.sha256(entity.lower().encode()).hexdigest()[:24]


def bridge_queue(instance: bytes) -> str:
    """Queue: questions to one bridge process, about locks that it holds."""
    return BRIDGE_QUEUES + instance.hex()


def instance_of(bridge_queue: str) -> bytes:
    """Return the bridge process whose queue this is."""
    return bytes.fromhex(bridge_queue.removeprefix(BRIDGE_QUEUES))


def declaration_fence(owner: bytes) -> str:
    """Queue: declared so that those before it last, and deleted then."""
    return f"{DECLARATION_FENCE}/{owner.hex()}"
