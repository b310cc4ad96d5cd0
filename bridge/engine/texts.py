"""Error texts of the engine, in Azure's words where Azure has the error."""

from __future__ import annotations

from collections.abc import Sequence

NAMED_MAX = 5
"""The most entities that one sentence names."""

LOCK_LOST = (
    "The lock supplied is invalid. Either the lock expired, or the message has already been "
    "removed from the queue. For more information please see https://aka.ms/ServiceBusExceptions ."
)
SESSION_ID_MISSING = (
    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that "
    "have session support enabled can only receive messages that have the SessionId set to a "
    "valid value."
)
PLAIN_ON_SESSION_ENTITY = (
    "It is not possible for an entity that requires sessions to create a non-sessionful message "
    "receiver."
)
NO_SESSION_IN_TIME = "The operation did not complete within the allocated time."
SESSION_LOCK_LOST = (
    "The session lock has expired on the MessageSession. Accept a new MessageSession."
)
SESSION_ON_PLAIN_ENTITY = (
    "A sessionful message receiver cannot be created on an entity that does not require sessions. "
    "Ensure RequiresSession is set to true when creating a Queue or Subscription to enable "
    "sessionful behavior."
)
MISPLACED_STATE = (
    "Somebody published the message into the queue of session states. Publish to the entity's "
    "exchange."
)
NUMBERS_NOT_HERE = (
    "Messages are not locked by number with RabbitMQ before 4.3, which counts a failed delivery of "
    "each message that goes back: receive them, and release what is not wanted."
)
PEEKS_NOT_HERE = (
    "Transfer dead letters are not peeked at with RabbitMQ before 4.3, which counts a failed "
    "delivery of each message that goes back: receive them."
)
NUMBERS_OF_SESSIONS = (
    "'{entity}' requires sessions: its messages are not locked by number. Receive the session."
)
RECEIVER_OF_FORWARDED = (
    "Cannot create a message receiver on an entity with auto-forwarding enabled."
)
TOO_MANY_HOPS = (
    "The maximum number of allowed hops when forwarding between queues has been exceeded. "
    "This value is set to 4."
)
HEADERS_TOO_LARGE = "The size quota for this stream has been exceeded."
UNKNOWN_FEATURE = (
    "A bridge of an earlier version is in the namespace, which does not know '{feature}' and would "
    "not heed it: messages could be there twice, or go to others. Replace it."
)

UNLISTED = (
    "This bridge has just begun, and does not know yet whether all other bridges of the namespace "
    "know '{feature}'. Try again."
)

SERVER_BUSY = (
    "The server was unable to process the request; please retry the operation. If the problem "
    "persists, please contact your Service Bus administrator and provide the tracking id."
)
DEFERRED_NOT_FOUND = "Failed to lock one or more specified messages. The message does not exist."
DEAD_LETTER_AGAIN = "A message of a dead-letter queue cannot be dead-lettered again: '{entity}'."


def not_found(entity: str) -> str:
    """Return the text: there is no such entity."""
    return (
        f"The messaging entity '{entity}' could not be found. "
        "To know more visit https://aka.ms/sbResourceMgrExceptions. "
    )


def already_exists(entity: str) -> str:
    """Return the text: an entity of this name exists."""
    return f"The messaging entity '{entity}' already exists."


def change_under_way(entity: str) -> str:
    """Return the text: another change of the entity is under way."""
    return f"Another change of the messaging entity '{entity}' is under way; try again."


def send_to_subscription(entity: str) -> str:
    """Return the text: a subscription takes messages from its topic only."""
    return f"Cannot open a Topic client for entity type Subscriber: '{entity}'. Send to its topic."


def send_to_sub_queue(entity: str) -> str:
    """Return the text: a sub-queue takes no messages from senders."""
    return f"A sub-queue takes no messages from senders: send to '{entity}' instead."


def too_large(entity: str, size_bytes: int, limit_bytes: int) -> str:
    """Return the text: a message is larger than the entity allows."""
    return (
        f"The received message (size:{size_bytes} bytes) exceeds the limit ({limit_bytes} bytes) "
        f"currently allowed on '{entity}'."
    )


def properties_too_large(entity: str, size_bytes: int, limit_bytes: int) -> str:
    """Return the text: a message's properties are too large for RabbitMQ."""
    return (
        f"The properties of a message in '{entity}' would take {size_bytes} bytes; "
        f"{limit_bytes} at most can be stored."
    )


def full(kind: str, entity: str, limit_bytes: int) -> str:
    """Return the text: the entity has reached its maximum size."""
    return (
        f"The maximum entity size has been reached or exceeded for {kind}: '{entity}'. "
        f"Max entity size in bytes: {limit_bytes}. QuotaType: EntitySize"
    )


def asked_too_large(count: int, size_bytes: int, limit_bytes: int) -> str:
    """Return the text: the deferred messages asked for make too large an answer."""
    return (
        f"The {count} messages that were asked for have {size_bytes} bytes together; an answer has "
        f"{limit_bytes} at most. Ask for fewer at a time."
    )


def busy(reason: object) -> str:
    """Return the text: RabbitMQ refuses or does not answer now, with the reason."""
    return f"{SERVER_BUSY} ({reason})"


def unknown(reason: object) -> str:
    """Return the text: whether an operation was carried out is unknown, with the reason."""
    return (
        "The operation did not complete within the allocated time; it may have been carried out, "
        f"or be carried out yet. ({reason})"
    )


def uncounted(entity: str) -> str:
    """Return the text: how many messages an entity has is not known."""
    return busy(
        f"how many messages {entity!r} has is not known: RabbitMQ, or another bridge, does not "
        "answer; the bridge's log says which"
    )


def unled(entity: str) -> str:
    """Return the text: nobody leads an entity, so what is scheduled is not known."""
    return busy(f"what is scheduled in {entity!r} is not known: no bridge leads it yet")


def session_cannot_be_locked(session_id: str) -> str:
    """Return the text: another receiver may hold the session."""
    return (
        f"The requested session '{session_id}' cannot be accepted. It may be locked by another "
        "receiver."
    )


def state_too_large(entity: str, size_bytes: int, limit_bytes: int) -> str:
    """Return the text: a session's state is too large."""
    return (
        f"The state of a session in '{entity}' would have {size_bytes} bytes; {limit_bytes} at "
        "most can be stored."
    )


def native_on_sessions(entity: str, count: int) -> str:
    """Return the text: native consumers take a session entity's messages."""
    return (
        f"'{entity}' requires sessions, and {count} consumers of its RabbitMQ queue are not this "
        "bridge's: they take messages out of their sessions, without order or lock. Stop them, or "
        "have them receive sessions through the bridge."
    )


def deferred_full(entity: str) -> str:
    """Return the text: the entity has the largest number of deferred messages."""
    return f"The largest number of deferred messages has been reached for Queue: '{entity}'."


def spelt_sessions(paths: Sequence[str]) -> str:
    """Return the sentence about entities that were made before session ids had no case."""
    named = ", ".join(map(repr, paths[:NAMED_MAX]))
    rest = f" and {len(paths) - NAMED_MAX} more" if paths[NAMED_MAX:] else ""
    return (
        f"Made before session ids had no case: {named}{rest}. There two spellings of one session "
        "id may be two sessions, until the entity is made anew."
    )


def unreadable_definition(path: str) -> str:
    """Return the text: an entity may be there, and must not be made over."""
    return (
        f"'{path}' has a definition in RabbitMQ that this version cannot read: a newer version has "
        "made it, or somebody wrote it by hand."
    )
