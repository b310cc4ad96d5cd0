"""Names of the headers that the bridge writes on messages in RabbitMQ.

`x-opt-` names are Azure's own message annotations, so that a RabbitMQ user (and RabbitMQ 4's own
AMQP 1.0) sees them under the names that the SDKs use; `x-busbridge-` names are the bridge's own.
"""

SEQUENCE_NUMBER = "x-opt-sequence-number"
"""Signed 64-bit ('l'): the entity's sequence number."""

ENQUEUED_SEQUENCE_NUMBER = "x-opt-enqueue-sequence-number"
"""Signed 64-bit ('l'): the number that a subscription's message has in its topic; of a message that
was forwarded the number that it got first."""

ENQUEUED_TIME = "x-opt-enqueued-time"
"""Signed 64-bit ('l'): UTC milliseconds."""

SCHEDULED_ENQUEUE_TIME = "x-opt-scheduled-enqueue-time"
"""Signed 64-bit ('l'): UTC milliseconds; a native publisher may also write a timestamp ('T')."""

TIME_TO_LIVE = "x-opt-time-to-live"
"""Signed 64-bit ('l'), ms: the true effective TTL; absent means for ever."""

OWN_TIME_TO_LIVE = "x-busbridge-own-ttl"
"""Bool ('t'): the sender gave the message a TTL; without it the TTL is the entity's alone."""

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

DEAD_LETTER_SOURCE = "x-opt-deadletter-source"
"""Text, on a dead letter that was forwarded: the entity in which it was dead-lettered."""

FORWARDED = "x-busbridge-forwarded"
"""Bytes ('x'), on a message that was forwarded: from where, and how often (`wire.forwarded`)."""

IDENTITY = "x-busbridge-id"
"""Bytes ('x'): 16 of the envelope's identity and the message's index in it, big-endian."""

NUMBERED = "x-busbridge-numbered"
"""True ('t'), on what a sequencer has numbered: bindings tell by it, as a definition that RabbitMQ
imports cannot say 'any value' (null: refused)."""

ACCEPTED = "x-busbridge-accepted"
"""Bytes ('x'), where duplicates are detected: 16 of the digest, and the time (UTC ms) i64."""

COPIES = "x-busbridge-copies"
"""Bytes ('x'), on a topic's message: which subscriptions have it, with their own numbers."""

TARGET = "x-busbridge-target"
"""Bytes ('x'), on a message that an engine sends back: the subscription that it is for."""

ENTRY = "x-busbridge-entry"
"""What a journal entry is when it is no message: cancel, marker, bucket, snapshot."""

KIND = "x-busbridge-kind"
"""What a message is when it is none of a user's: envelope, lapsed (in an inbox), ask (among
deferred messages)."""

SCHEDULED_NUMBER = "x-busbridge-scheduled"
"""Signed 64-bit ('l'): the number under which an activated message had waited."""

DELIVERED = "x-busbridge-delivered"
"""Signed 64-bit ('l'): deliveries counted before the message was published again."""

DEAD_LETTERED = "x-busbridge-dead-lettered"
"""Signed 64-bit ('l'), on what an engine has dead-lettered: failed deliveries before."""

MOVED = "x-busbridge-moved"
"""Text, on a message that was dead-lettered, set aside or put back: the queue it was published to;
on a dead letter of several subscriptions what the names of their dead-letter queues end with."""

DEFERRED = "x-busbridge-deferred"
"""Text, on a deferred message: the sub-queue that it belongs to, "" for the entity itself."""

WAITING = "x-busbridge-waiting"
"""Bytes ('x'), on a message that waits for its time: number, due time, TTL, identity."""

DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"
"""As a message's reply_to: RabbitMQ puts the address of the channel that publishes it there."""

OWN_PREFIX = "x-busbridge-"
"""What the bridge's own headers begin with."""

SECTIONS = "x-busbridge-sections"
"""Bytes ('x'): the AMQP 1.0 sections that 0-9-1 cannot say exactly, encoded as they came."""

BODY = "x-busbridge-body"
"""Present when the body is not one Data section: `sections`, AMQP 1.0 body sections, encoded."""

BASIC_USER_ID = "x-basic-user-id"
"""The 0-9-1 user_id of a native message: RabbitMQ would compare it with the bridge's own user."""

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_ERROR_DESCRIPTION = "DeadLetterErrorDescription"

BROKER_ONLY = frozenset(
    {
        "x-death",
        "x-first-death-reason",
        "x-first-death-queue",
        "x-first-death-exchange",
        "x-last-death-reason",
        "x-last-death-queue",
        "x-last-death-exchange",
        "x-delivery-count",
        "x-acquired-count",
        "CC",
        "BCC",
        "x-stream-filter-value",
    }
)
"""What only a broker may say: a stale one misleads RabbitMQ, so it is taken off at the entrance. So
is what a stream is filtered by (docs/rabbitmq-faults.md: stream-filter)."""

STAMPED = frozenset({SEQUENCE_NUMBER, ENQUEUED_SEQUENCE_NUMBER, ENQUEUED_TIME, TIME_TO_LIVE})
"""What the sequencer alone writes, beside the bridge's own."""

OWN_CONTENT = frozenset({SECTIONS, BODY})
"""Headers of the bridge's own that say what a message holds: they travel with it."""

OF_FORWARDED = frozenset({FORWARDED, ENQUEUED_SEQUENCE_NUMBER})
"""What a message that was forwarded has in its own properties: its forwarder wrote them."""

STREAM_PREFIX = "x-stream-"
"""What RabbitMQ's headers about streams begin with."""

_AZURE_OR_BROKER = ("x-opt-", OWN_PREFIX, STREAM_PREFIX)


def is_reserved(name: str) -> bool:
    """Whether only a broker or the sequencer may write this header."""
    if name.startswith(OWN_PREFIX):
        return name not in OWN_CONTENT
    return name in BROKER_ONLY or name in STAMPED


def is_application_key(name: str) -> bool:
    """Whether an application property may have this name: only an application knows what it is."""
    return name not in BROKER_ONLY and not name.startswith(_AZURE_OR_BROKER)
