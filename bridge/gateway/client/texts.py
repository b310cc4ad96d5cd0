"""Azure's error texts, for errors without a text of the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

MESSAGE_LOCK_OF_SESSION = (
    "The messages of a session are locked with it: renew the session's lock instead."
)
SESSIONS_ARE_EXCLUSIVE = (
    "The link '{link}' contains invalid filter type. A session has one receiver here, which no "
    "other can take it over from."
)
"""Behind the link's name .NET looks for Azure's words, to recognize an unsupported feature."""

NO_TRANSACTION_OF_COPIES = (
    "A link that copies or relays messages takes part in no transaction: send outside of one."
)
NOT_IN_TRANSACTIONS = (
    "The operation '{name}' is not implemented in a transaction: ask for it outside of one."
)
DELETION_NOT_IN_TRANSACTIONS = (
    "The operation '{name}' is not implemented in a transaction with 'receiver-settle-mode' 0 "
    "(receive and delete), as it could not be undone. Receive with peek-lock, and complete the "
    "messages in the transaction."
)
DYNAMIC_NOT_HERE = (
    "A dynamic source or target is not implemented, but for JMS's temporary queues: create an "
    "entity by the administration API."
)
SHARED_NOT_HERE = (
    "Subscriptions that JMS clients share are not implemented: make one by the administration API, "
    "and receive from 'topic/Subscriptions/name' as from a queue."
)
NO_TOPIC = "'{path}' is no topic: durable subscribers have none but those of a topic."
COPY_NOT_HERE = (
    "The distribution-mode '{mode}' is not implemented: what a link receives is taken out of the "
    "entity. Messages are looked at with peek, the operation com.microsoft:peek-message at the "
    "entity's $management."
)
FILTER_NOT_HERE = (
    "The filter '{name}' is not implemented. A subscription's rules select messages, and "
    "com.microsoft:session-filter a session."
)
NO_SOURCE = (
    "The link property 'com.busbridge:relay-source' is no name of a source: a string of 1 to "
    "{most} characters."
)
NO_RELAY_SUBSCRIPTION = (
    "The link property 'com.busbridge:relay-subscription' is no name of a subscription of the "
    "link's topic, beside 'com.busbridge:relay-source'."
)
TIMED_FOR_ONE = "A message for one subscription alone cannot be scheduled."
BELOW_LOWEST = (
    "The message {number} of the source came behind the lowest number {lowest}: the relay has said "
    "that it cannot come again."
)
IMPORT_STOPPED = (
    "A transfer before this one is not known to be stored ({why}): nothing behind it is. Attach "
    "the link again."
)
IMPORT_TOO_MANY = "The transfer has {count} messages; one that imports has {most} at most."
NO_TIME = "The message {number} is scheduled, and has no annotation 'x-opt-scheduled-enqueue-time'."
DEAD_AND_SCHEDULED = "The message {number} cannot be scheduled in a dead-letter queue."
NO_SUBSCRIPTIONS = (
    "'{path}' is a queue: its messages have no annotation 'com.busbridge:subscription'."
)
NO_SUBSCRIPTION_NAMED = (
    "The message {number} of a topic has the annotations 'com.busbridge:subscription' and "
    "'x-opt-enqueue-sequence-number', unless it is scheduled."
)
UNAUTHORIZED_CONNECTION = (
    "The connection did not present a valid token at $cbs within {seconds:g} seconds."
)
TOKEN_EXPIRED = (
    "ExpiredToken: The token that the link was authorised with has expired. Resource: '{resource}'."
)
UNFINISHED = "The rest of a frame or a message did not come within {seconds:g} seconds."
TOO_MUCH_UNFINISHED = (
    "Too many messages have not come whole, on all connections together, and those of this one are "
    "the oldest. Connect again."
)
REPLY_NOT_KEPT = (
    "The request '{id}' came again. It was carried out before; its reply is too large to be kept."
)
NATIVE_CLIENT = (
    "AMQP 0-9-1 is RabbitMQ's own protocol, and this is the bridge's port, which speaks AMQP 1.0 "
    "as Azure Service Bus does. RabbitMQ's own port is {ports}."
)
FAILED_LINK = "The bridge failed to handle this link; attach again."
FAILED_CONNECTION = "The bridge failed; connect again."
STOPPING = "The service is stopping; connect again."


def tracked(description: str, namespace_name: str, entity: str = "") -> str:
    """Return a description with the end of Azure's own: a tracking id, system and time."""
    if "TrackingId:" in description:
        return description
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    tracker = f"{namespace_name}:{entity}" if entity else namespace_name
    return f"{description} TrackingId:{uuid4()}_G0, SystemTracker:{tracker}, Timestamp:{now}"


def native_client(ports: Sequence[int]) -> str:
    """Return what a client of AMQP 0-9-1 is told; "" when RabbitMQ's ports are not known."""
    numbers = " or ".join(str(port) for port in dict.fromkeys(ports))
    return NATIVE_CLIENT.format(ports=numbers) if numbers else ""


def not_found(resource: str) -> str:
    """Return Azure's text for an unknown entity; `resource` is `sb://host/entity`."""
    return (
        f"The messaging entity '{resource}' could not be found. "
        "To know more visit https://aka.ms/sbResourceMgrExceptions. "
    )
