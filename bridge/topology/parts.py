"""The resources that an entity is made of, one function each, with the reason of every argument."""

from __future__ import annotations

from dataclasses import replace

from bridge.topology import names
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX, TTL_MAX_MS
from bridge.topology.resources import Binding, Exchange, Queue, Topology, Value

SCHEMA_ARGUMENT = "busbridge-schema"
"""Argument that marks a resource as the bridge's; the value is the version of the layout.

RabbitMQ stores arguments without `x-` and does not compare them when a resource is declared again.
"""

SCHEMA_VERSION = 1

SCHEMA: dict[str, Value] = {SCHEMA_ARGUMENT: SCHEMA_VERSION}

QUORUM: dict[str, Value] = {"x-queue-type": "quorum", **SCHEMA}
"""The arguments of the bridge's quorum queues on which the choice of policies depends."""

CONSUMER_TIMEOUT_ARGUMENT = "x-consumer-timeout"
CONSUMER_TIMEOUT_MS = TTL_MAX_MS
"""In effect no timeout: the bridge's timers end locks, and RabbitMQ's default of 30 minutes would
close a channel with all its locks.

The timeout is an argument, so that no user's policy shortens it unnoticed.
"""

DISCONNECTED_TIMEOUT_MS = 2_000
"""Time after which 4.3 gives up the consumers of a dead cluster node: their unacked messages
return, and another single active consumer becomes active. The default is 60 s; 4.0 does not
wait.

A shorter break between nodes costs no lock.
"""

JOURNAL_BYTES_MAX = 1_073_741_824
"""1 GiB: a takeover reads the last few thousand entries, a peek any entry that is left."""

JOURNAL_SEGMENT_BYTES = 33_554_432
"""32 MiB: RabbitMQ deletes whole segments of a stream, so a journal exceeds its limit by 3 percent
at most; 32 segments are 64 files."""

HISTORY_BYTES_MAX = 1_073_741_824
"""1 GiB: 33 million digests."""

HISTORY_AGE = "8D"
"""8 days: the longest duplicate detection window is 7 days. With a shorter window, reads start at
the window's begin."""

HISTORY_SEGMENT_BYTES = 4_194_304
"""4 MiB, 130,000 digests: RabbitMQ deletes whole segments of a stream."""
SETTLED_BYTES_MAX = 67_108_864
SETTLED_SEGMENT_BYTES = 4_194_304
"""64 MiB (`SETTLED_BYTES_MAX`) of ranges of numbers, in segments of 4 MiB. A bridge that serves
peeks writes all ranges again after every 8 MiB."""

DEFERRED_MAX = 60_000
"""Maximum number of deferred messages of an entity. One consumer holds all of them, a prefetch is
65,535 at most, and requests in the same queue need a part of it."""

SESSION_STATE_BYTES_MAX = 256 << 10
"""The largest state of a session in Service Bus's Standard tier."""

SESSION_STATES_MAX = 60_000
"""Maximum number of session states of one shard, for the same reason."""

DEATH_HEADER = "x-first-death-reason"
"""Header with the reason of a message's first dead-lettering."""


NUMBERED_HEADER = "x-busbridge-numbered"
"""Header of every message that a sequencer has numbered; its value is true."""


def fixed_exchange(name: str, kind: str, **arguments: Value) -> Exchange:
    """Return an exchange with the schema argument; `_` in argument names stands for `-`."""
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    return Exchange(name=name, type=kind, arguments=given | SCHEMA)


def quorum_queue(name: str, arguments: dict[str, Value]) -> Queue:
    """Return a quorum queue without delivery limit and, in effect, without consumer timeout."""
    always: dict[str, Value] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT_MAX,
        CONSUMER_TIMEOUT_ARGUMENT: CONSUMER_TIMEOUT_MS,
        "x-consumer-disconnected-timeout": DISCONNECTED_TIMEOUT_MS,
    }
    return Queue(name=name, arguments=always | arguments | SCHEMA)


def dead_lettering(exchange: str, routing_key: str) -> dict[str, Value]:
    """Return a queue's arguments for dead-lettering at least once.

    At least once needs `reject-publish`; without it RabbitMQ silently dead-letters at most once.

    Without a dead-letter routing key RabbitMQ would route a dead letter by all CC and BCC keys of
    the message.
    """
    return {
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-routing-key": routing_key,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def bound_by_own_name(exchange: str, queue: str) -> Binding:
    """Return a binding whose routing key is the queue's own name."""
    return Binding(source=exchange, destination=queue, routing_key=queue)


def front_and_inbox(entity: str) -> Topology:
    """Return the front exchange and the inbox, in which sent messages wait for their numbers.

    Messages that expire in the inbox come back to the sequencer, which applies the entity's own
    rule.
    """
    inbox = quorum_queue(
        names.inbox(entity),
        {"x-single-active-consumer": True} | dead_lettering("", names.EXPIRED_UNNUMBERED),
    )
    return Topology(
        exchanges=(fixed_exchange(names.front(entity), "fanout"),),
        queues=(inbox,),
        bindings=(Binding(source=names.front(entity), destination=inbox.name),),
    )


def active_queue(entity: str, shard: int = 0) -> Queue:
    """Return the queue of an entity's active messages, of one shard.

    The delivery limit here only keeps a returned message in its place; the policy has a smaller
    one.
    """
    return quorum_queue(
        names.active_queue(entity, shard),
        dead_lettering(names.dead_letter_exchange(entity), names.dead_letter_queue(entity)),
    )


def journal(entity: str) -> Queue:
    """Return the stream of an entity's journal."""
    return _stream(names.journal(entity), JOURNAL_BYTES_MAX, JOURNAL_SEGMENT_BYTES)


def history(entity: str) -> Queue:
    """Return the stream of an entity's history, for duplicate detection; the first segment of
    accepted messages makes it."""
    name = names.history(entity)
    return _stream(name, HISTORY_BYTES_MAX, HISTORY_SEGMENT_BYTES, {"x-max-age": HISTORY_AGE})


def moved(entity: str) -> Queue:
    """Return the stream of messages that left an active queue and still exist, for peeks."""
    return _stream(names.moved(entity), JOURNAL_BYTES_MAX, JOURNAL_SEGMENT_BYTES)


def settled(queue: str) -> Queue:
    """Return the stream of the numbers that have left a queue; the first peek makes it."""
    return _stream(names.settled(queue), SETTLED_BYTES_MAX, SETTLED_SEGMENT_BYTES)


def _stream(
    name: str, bytes_max: int, segment_bytes: int, age: dict[str, Value] | None = None
) -> Queue:
    return Queue(
        name=name,
        arguments={
            "x-queue-type": "stream",
            **(age or {}),
            "x-max-length-bytes": bytes_max,
            "x-stream-max-segment-size-bytes": segment_bytes,
            **SCHEMA,
        },
    )


def also_moved(exchange: str, dead: str, stream: str, *, keeps_expired: bool) -> Topology:
    """Return the bindings that route the dead letters that `dead_letters` keeps to a stream, too.

    Dropped dead letters have a binding with the same arguments to the sink: it replaces a binding
    to the stream that is not wanted any more (`diff`).

    The bindings take numbered messages only, whose headers a sequencer has cleaned. A stream cannot
    take every header of other messages, and RabbitMQ would try again for ever.
    """
    found = dead_letters(exchange, dead, keeps_expired=keeps_expired)
    return Topology(
        bindings=tuple(
            replace(
                binding,
                destination=stream if binding.destination == dead else binding.destination,
                arguments={**binding.arguments, NUMBERED_HEADER: True},
            )
            for binding in found.bindings
            if binding.source == exchange
        )
    )


def dead_letters(exchange: str, dead: str, *, keeps_expired: bool) -> Topology:
    """Return an entity's dead-letter exchange and queue, with bindings for each reason.

    Args:
        exchange: the name of the entity's dead-letter exchange.
        dead: the name of the entity's dead-letter queue.
        keeps_expired: expired messages are dead-lettered, too; otherwise they are dropped.

    Dead letters of a reason that no binding names take the alternate exchange to the dead-letter
    queue.

    No dead letter may stay unrouted: with at-least-once RabbitMQ would keep it for ever, and it
    would count against the queue's size.
    """
    expired = dead if keeps_expired else names.SINK
    bindings = [
        Binding(
            source=exchange,
            destination=destination,
            routing_key=names.listable_key(destination),
            arguments={"x-match": "all-with-x", DEATH_HEADER: reason},
        )
        for reason, destination in (
            ("delivery_limit", dead),
            ("expired", expired),
            ("rejected", dead),
        )
    ]
    return Topology(
        exchanges=(fixed_exchange(exchange, "headers", alternate_exchange=names.OTHER_DEATHS),),
        queues=(quorum_queue(dead, {}),),
        bindings=(bound_by_own_name(names.OTHER_DEATHS, dead), *bindings),
    )


def deferred_queue(entity: str) -> Queue:
    """Return the queue of an entity's deferred messages; the first defer makes it.

    One bridge at a time holds all its messages unacked, so their number is limited to a prefetch.
    """
    return _held(names.deferred_queue(entity), DEFERRED_MAX)


def transfer_queue(entity: str) -> Queue:
    """Return the queue of what an entity's transactions send to others; the first transfer makes
    it.

    One forwarder at a time gets its messages: RabbitMQ returns what that held in order.
    """
    return quorum_queue(names.transfer_queue(entity), {"x-single-active-consumer": True})


def transfer_dead_letter_queue(entity: str) -> Queue:
    """Return the queue of what the targets of an entity's transactions have not taken; the first
    such message makes it."""
    return quorum_queue(names.transfer_dead_letter_queue(entity), {})


def sessions_queue(entity: str, shard: int = 0) -> Queue:
    """Return the queue of the states of a shard's sessions: one message for each session. The
    first receiver of a session makes it.

    One bridge at a time consumes the queue and holds all its messages. That bridge alone consumes
    the shard's active queue, too.
    """
    return _held(names.sessions_queue(entity, shard), SESSION_STATES_MAX)


def _held(name: str, length_max: int) -> Queue:
    """Return a queue whose messages one bridge at a time holds unacked, all of them."""
    return quorum_queue(
        name,
        {
            "x-single-active-consumer": True,
            "x-max-length": length_max,
            "x-overflow": "reject-publish",
        },
    )


def sink() -> Queue:
    """Return the sink, a queue that keeps no message: dead letters that are dropped go there."""
    return Queue(
        name=names.SINK,
        arguments={"x-queue-type": "classic", "x-max-length": 0, **SCHEMA},
    )


def bucket_queue(entity: str, level: int, slot: int) -> Queue:
    """Return the queue of a bucket: the scheduled messages of one interval."""
    return quorum_queue(names.bucket(entity, level, slot), {})
