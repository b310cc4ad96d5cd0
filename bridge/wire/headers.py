"""Names of the headers that the bridge writes on messages in RabbitMQ.

`x-opt-` names are Azure's own message annotations: a RabbitMQ user (and RabbitMQ 4's own AMQP 1.0)
sees the names that the SDKs use. `x-busbridge-` names are the bridge's own.
"""

from __future__ import annotations

from bridge.wire.table import Table

SEQUENCE_NUMBER = "x-opt-sequence-number"
"""Signed 64-bit ('l'): the entity's sequence number."""

ENQUEUED_SEQUENCE_NUMBER = "x-opt-enqueue-sequence-number"
"""Signed 64-bit ('l'): the topic's number of a subscription's message; the first number of a
forwarded message."""

ENQUEUED_TIME = "x-opt-enqueued-time"
"""Signed 64-bit ('l'): UTC milliseconds."""

SCHEDULED_ENQUEUE_TIME = "x-opt-scheduled-enqueue-time"
"""Signed 64-bit ('l'): UTC milliseconds; a native publisher may also write a timestamp ('T')."""

TIME_TO_LIVE = "x-opt-time-to-live"
"""Signed 64-bit ('l'), ms: the effective TTL; absent means for ever."""

OWN_TIME_TO_LIVE = "x-busbridge-own-ttl"
"""Bool ('t'): the sender gave the message a TTL; absent, the TTL is the entity's alone."""

PARTITION_KEY = "x-opt-partition-key"
VIA_PARTITION_KEY = "x-opt-via-partition-key"
SESSION_ID = "x-opt-session-id"
REPLY_TO_SESSION_ID = "x-opt-reply-to-session-id"
TO = "x-opt-to"
USER_ID = "x-opt-user-id"
ABSOLUTE_EXPIRY_TIME = "x-opt-absolute-expiry-time"
CREATION_TIME = "x-opt-creation-time"
GROUP_SEQUENCE = "x-opt-group-sequence"
PRIORITY = "x-opt-priority"
"""AMQP 1.0 header.priority: never a RabbitMQ priority, which would break arrival order."""

DURABLE = "x-opt-durable"
FIRST_ACQUIRER = "x-opt-first-acquirer"
"""Bool ('t'): header.durable and header.first-acquirer as the sender said them."""

DEAD_LETTER_SOURCE = "x-opt-deadletter-source"
"""Text, on a forwarded dead letter: the entity that dead-lettered the message."""

FORWARDED = "x-busbridge-forwarded"
"""Bytes ('x'), on a forwarded message: its source, and its number of hops (`wire.forwarded`)."""

RELAYED = "x-busbridge-relayed"
"""Bytes ('x'), on a relay's copy: its source and its number there (`wire.relay_source`)."""

IDENTITY = "x-busbridge-id"
"""Bytes ('x'): 16 of the envelope's identity and the message's index in it, big-endian."""

NUMBERED = "x-busbridge-numbered"
"""True ('t'), on numbered messages: bindings match on this header, as a definition that RabbitMQ
imports cannot express 'any value' (null: refused)."""

ACCEPTED = "x-busbridge-accepted"
"""Bytes ('x'), where duplicates are detected: 16 of the digest, and the time (UTC ms) i64."""

COPIES = "x-busbridge-copies"
"""Bytes ('x'), on a topic's message: the subscriptions with a copy, and the copies' numbers."""

TARGET = "x-busbridge-target"
"""Bytes ('x'), on a message that an engine sends back: the target subscription."""

TRANSFER_TO = "x-busbridge-transfer-to"
"""The path of the entity that a message of a transfer queue goes to."""

NO_STATE = "x-busbridge-no-state"
"""True, of a stored state of a session: the session has none, and this is the time of that."""

ENTRY = "x-busbridge-entry"
"""The kind of a journal entry that is no message: cancel, marker, bucket, snapshot."""

KIND = "x-busbridge-kind"
"""The kind of a message that is no user's: envelope, lapsed (in an inbox), ask (among deferred
messages)."""

SCHEDULED_NUMBER = "x-busbridge-scheduled"
"""Signed 64-bit ('l'): the number of an activated message while it waited."""

DELIVERED = "x-busbridge-delivered"
"""Signed 64-bit ('l'): deliveries counted before the message was published again."""

DEAD_LETTERED = "x-busbridge-dead-lettered"
"""Signed 64-bit ('l'), on messages that an engine has dead-lettered: failed deliveries before."""

DEATHS = "x-busbridge-deaths"
"""Signed 64-bit ('l'), on messages that engines have dead-lettered more than once: how often. An
operator who moves a dead letter back by RabbitMQ's means leaves number and identity."""

MOVED = "x-busbridge-moved"
"""Text, on a message that was dead-lettered, set aside or put back: the queue of the publish; on a
dead letter of several subscriptions the common ending of their dead-letter queues' names."""

DEFERRED = "x-busbridge-deferred"
"""Text, on a deferred message: its sub-queue, "" for the entity itself."""

IMPORTED = "x-busbridge-imported"
"""True ('t'), on a message that a migration has imported under the number of its source."""

WAITING = "x-busbridge-waiting"
"""Bytes ('x'), on a scheduled message that waits: number, due time, TTL, identity."""

RESERVED = "x-busbridge-reserved"
"""True ('t'), on a waiting message whose number was reserved: it is behind higher numbers in the
journal."""

DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"
"""As a message's reply_to: RabbitMQ replaces it by the address of the publishing channel."""

OWN_PREFIX = "x-busbridge-"
"""Prefix of the bridge's own headers."""

SECTIONS = "x-busbridge-sections"
"""Bytes ('x'): the AMQP 1.0 sections that 0-9-1 cannot represent exactly, encoded and unchanged."""

BODY = "x-busbridge-body"
"""Present when the body is not one Data section: `sections`, AMQP 1.0 body sections, encoded."""

ORDER = "x-busbridge-order"
"""Bytes ('x'): the order in which the sender gave the application properties (`mapping.order`)."""

BASIC_USER_ID = "x-basic-user-id"
"""The 0-9-1 user_id of a native message: RabbitMQ would compare it with the bridge's own user."""

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_ERROR_DESCRIPTION = "DeadLetterErrorDescription"

PUBLISH_NUMBER = "x-dotnet-pub-seq-no"
"""Header that RabbitMQ's client for .NET adds when it tracks confirms: the number of the publish on
its channel, which says nothing to a receiver."""

DELIVERY_COUNTS = "x-delivery-count", "x-acquired-count"
"""Headers by which RabbitMQ counts the deliveries of a message; one of them is there from the
second delivery on."""

BROKER_ONLY = frozenset(
    {
        "x-death",
        "x-first-death-reason",
        "x-first-death-queue",
        "x-first-death-exchange",
        "x-last-death-reason",
        "x-last-death-queue",
        "x-last-death-exchange",
        *DELIVERY_COUNTS,
        "CC",
        "BCC",
        "x-stream-filter-value",
        PUBLISH_NUMBER,
    }
)
"""Headers that only a broker, or a client's channel, may set: a stale one misleads RabbitMQ, so
they are removed at the entrance. So is the filter value of streams (docs/rabbitmq-faults.md:
stream-filter)."""

STAMPED = frozenset({SEQUENCE_NUMBER, ENQUEUED_SEQUENCE_NUMBER, ENQUEUED_TIME, TIME_TO_LIVE})
"""Headers that only the sequencer writes, beside the bridge's own."""

OWN_CONTENT = frozenset({SECTIONS, BODY, ORDER})
"""The bridge's own headers that describe a message's content: they travel with the message."""

OF_FORWARDED = frozenset({FORWARDED, ENQUEUED_SEQUENCE_NUMBER})
"""Headers in a forwarded message's own properties: its forwarder wrote them."""

STREAM_PREFIX = "x-stream-"
"""Prefix of RabbitMQ's headers about streams."""

_AZURE_OR_BROKER = ("x-opt-", OWN_PREFIX, STREAM_PREFIX)


def is_reserved(name: str) -> bool:
    """Whether only a broker or the sequencer may write this header."""
    if name.startswith(OWN_PREFIX):
        return name not in OWN_CONTENT
    return name in BROKER_ONLY or name in STAMPED


def is_application_key(name: str) -> bool:
    """Whether an application property may have this name: not Azure's, RabbitMQ's, the bridge's."""
    return name not in BROKER_ONLY and not name.startswith(_AZURE_OR_BROKER)


def application_fields(table: Table) -> Table:
    """Return the headers that are application properties."""
    return {name: field for name, field in table.items() if is_application_key(name)}
