"""Rows of the mapping table: an entity's messages, their locks, limits, times and targets."""

from __future__ import annotations

from bridge.model.duration import is_forever
from bridge.model.properties import EntityKind
from bridge.topology.capabilities import TTL_MAX_MS
from bridge.topology.findings import needed_bytes
from policies.grade import Subject, approximate, bridge, exact, lost, when
from policies.row import NOTHING, Row, has, none, off


def _is_short(time_to_live_ms: int) -> bool:
    return time_to_live_ms <= TTL_MAX_MS or is_forever(time_to_live_ms)


def _exceeds_message_size(subject: Subject) -> bool:
    size_kb = getattr(subject.entity, "max_message_size_kb", None) or 0
    return needed_bytes(int(size_kb)) > subject.capabilities.message_bytes_max


def _nack_is_free(subject: Subject) -> bool:
    return not subject.capabilities.nack_counts


def _has_one_timeout(subject: Subject) -> bool:
    return not subject.capabilities.has_queue_consumer_timeout


MESSAGES: tuple[Row, ...] = (
    Row(
        property="LockDuration",
        rabbitmq="unacked delivery; a timer of the bridge; x-consumer-timeout from 3.12 on",
        with_bridge=(
            when(
                "RabbitMQ before 3.12",
                _has_one_timeout,
                approximate(
                    "One consumer timeout for the whole node (30 minutes): a lock that is renewed "
                    "for longer ends with it. Set consumer_timeout in rabbitmq.conf."
                ),
            ),
            bridge(),
        ),
        plain=(
            approximate(
                "A delivery belongs to its consumer until that settles it or goes away; there is "
                "no duration and no renewal, only RabbitMQ's consumer timeout (30 minutes)."
            ),
        ),
    ),
    Row(
        property="MaxDeliveryCount",
        rabbitmq="policy delivery-limit = MaxDeliveryCount - 1",
        with_bridge=(exact(),),
        plain=(
            when(
                "RabbitMQ from 4.3 on",
                _nack_is_free,
                approximate("basic.nack with requeue does not count; use basic.reject."),
            ),
            exact(),
        ),
    ),
    Row(
        property="DefaultMessageTimeToLive",
        rabbitmq="policy message-ttl of the queue, or of each subscription's queue; none: for ever",
        both=(
            when(
                "up to 10 years, or for ever",
                has("default_message_time_to_live_ms", _is_short),
                exact(),
            ),
        ),
        with_bridge=(bridge("Longer than RabbitMQ can hold; it is in no policy."),),
        plain=(lost("Longer than RabbitMQ can hold (10 years): messages never expire."),),
    ),
    Row(
        property="DeadLetteringOnMessageExpiration",
        rabbitmq="dead-letter exchange of type headers, by the reason that RabbitMQ stamps",
        with_bridge=(exact(),),
        plain=(exact("The reason is in x-death, not in DeadLetterReason."),),
    ),
    Row(
        property="MaxSizeInMegabytes",
        only=frozenset({EntityKind.QUEUE}),
        rabbitmq="policy max-length-bytes, argument x-overflow: reject-publish",
        both=(approximate("RabbitMQ counts what waits, not what is locked."),),
    ),
    Row(
        property="MaxSizeInMegabytes",
        only=frozenset({EntityKind.TOPIC}),
        rabbitmq="plain: policy max-length-bytes of each subscription's queue",
        with_bridge=(
            approximate("The bridge looks at what waits in all subscriptions every 15 s."),
        ),
        plain=(
            approximate(
                "Each subscription may hold as much as its topic, instead of all together."
            ),
        ),
    ),
    Row(
        property="RequiresSession",
        rabbitmq="with the bridge: per shard (sessionShards of the definition; 1 where it says "
        "nothing) a queue of messages and one of states, and one consumer that has both",
        both=(off("requires_session"),),
        with_bridge=(bridge(),),
        plain=(
            lost(
                "No sessions. The nearest thing is a single active consumer "
                "(x-single-active-consumer): one receiver at a time gets everything, in order."
            ),
        ),
    ),
    Row(
        property="RequiresDuplicateDetection",
        rabbitmq=NOTHING,
        both=(off("requires_duplicate_detection"),),
        with_bridge=(bridge(),),
        plain=(lost("Duplicates are delivered."),),
    ),
    Row(
        property="DuplicateDetectionHistoryTimeWindow",
        rabbitmq=NOTHING,
        both=(
            when(
                "without duplicate detection",
                has("requires_duplicate_detection", lambda value: not value),
                exact(),
            ),
        ),
        with_bridge=(bridge(),),
        plain=(lost("Duplicates are delivered."),),
    ),
    Row(
        property="ForwardTo",
        rabbitmq="plain: a shovel",
        both=(none("forward_to"),),
        with_bridge=(
            when(
                "of an entity that requires sessions",
                has("requires_session", bool),
                approximate("Messages stay; what Service Bus does then is not known."),
            ),
            bridge(),
        ),
        plain=(
            when(
                "of an entity that requires sessions",
                has("requires_session", bool),
                lost("No shovel is made, and messages stay."),
            ),
            when(
                "to no entity of the namespace",
                lambda subject: (
                    getattr(subject.entity, "forward_to", "").lower() not in subject.names
                ),
                lost("There is no such entity: no shovel is made, and messages stay."),
            ),
            when(
                "in a circle",
                lambda subject: subject.comes_back,
                lost("RabbitMQ has no limit of hops: no shovel is made, and messages stay."),
            ),
            lost(
                "A shovel moves them (plugin rabbitmq_shovel). The limit of hops and transfer dead "
                "letters are lost: what the target refuses stays and is tried again."
            ),
        ),
    ),
    Row(
        property="ForwardDeadLetteredMessagesTo",
        rabbitmq="plain: the dead-letter exchange is bound to the target's exchange",
        both=(none("forward_dead_lettered_messages_to"),),
        with_bridge=(bridge(),),
        plain=(
            when(
                "to an entity of the namespace",
                lambda subject: (
                    getattr(subject.entity, "forward_dead_lettered_messages_to", "").lower()
                    in subject.names
                ),
                approximate("They go at once; reason and source are in x-death."),
            ),
            lost("There is no such entity: dead letters stay."),
        ),
    ),
    Row(
        property="MaxMessageSizeInKilobytes",
        rabbitmq="max_message_size of the node",
        both=(
            when(
                "more than the node takes as delivered (128 MiB, 16 MiB from 4.0 on)",
                _exceeds_message_size,
                approximate("Raise max_message_size in rabbitmq.conf."),
            ),
        ),
        with_bridge=(bridge(),),
        plain=(approximate("The node's max_message_size holds for all queues."),),
    ),
)
"""Locks, limits, times, and where messages go."""
