"""Errors, in Azure's words.

Every error carries Azure's AMQP condition, the status for `$management`, and whether a retry helps.
Source of the table: the service's own conditions as the SDKs map them.

    ServiceBusError
      EntityNotFound, EntityAlreadyExists, EntityDisabled, EntityConflict, EntityChanged
      MessageNotFound, MessageLockLost, MessageSizeExceeded
      SessionLockLost, SessionCannotBeLocked
      TransactionUnknown, TransactionRolledBack, TransactionTimedOut
      Unauthorized, NotAllowed, NotImplementedHere, ArgumentError, ArgumentOutOfRange, InvalidField
      QuotaExceeded, ServerBusy, InternalError
      OperationTimeout
        TransactionInDoubt
"""

from __future__ import annotations


class ServiceBusError(Exception):
    """A refusal by Service Bus; `str()` is the description that the client sees.

    Attributes:
        condition: the AMQP error condition.
        status: the status code of a `$management` or HTTP reply.
        is_retryable: whether the same request can succeed later without any change.
    """

    condition = "amqp:internal-error"
    status = 500
    is_retryable = True


class EntityNotFound(ServiceBusError):
    """No such queue, topic or subscription."""

    condition, status, is_retryable = "amqp:not-found", 404, False


class EntityAlreadyExists(ServiceBusError):
    """An entity or rule of this name exists already."""

    condition, status, is_retryable = "com.microsoft:entity-already-exists", 409, False


class EntityConflict(ServiceBusError):
    """The definition contradicts the existing entity, which cannot be changed in place."""

    condition, status, is_retryable = "com.microsoft:precondition-failed", 409, False


class EntityChanged(ServiceBusError):
    """The entity has changed since the client read it."""

    condition, status, is_retryable = "com.microsoft:precondition-failed", 412, False


class EntityDisabled(ServiceBusError):
    """The entity's status forbids the operation."""

    condition, status, is_retryable = "com.microsoft:entity-disabled", 400, False


class MessageNotFound(ServiceBusError):
    """No message has this sequence number in this state."""

    condition, status, is_retryable = "com.microsoft:message-not-found", 404, False


class MessageLockLost(ServiceBusError):
    """The lock token is unknown, or its lock has ended."""

    condition, status, is_retryable = "com.microsoft:message-lock-lost", 410, False


class SessionLockLost(ServiceBusError):
    """The session lock has ended."""

    condition, status, is_retryable = "com.microsoft:session-lock-lost", 410, False


class SessionCannotBeLocked(ServiceBusError):
    """Another receiver holds the session."""

    condition, status, is_retryable = "com.microsoft:session-cannot-be-locked", 410, True


class TransactionUnknown(ServiceBusError):
    """The connection has no transaction of this id, or has discharged it."""

    condition, status, is_retryable = "amqp:transaction:unknown-id", 400, False


class TransactionRolledBack(ServiceBusError):
    """The transaction was rolled back: nothing of it was carried out, nor will be."""

    condition, status, is_retryable = "amqp:transaction:rollback", 400, False


class TransactionTimedOut(ServiceBusError):
    """The transaction took longer than two minutes, and was rolled back."""

    condition, status, is_retryable = "amqp:transaction:timeout", 408, False


class MessageSizeExceeded(ServiceBusError):
    """The message is larger than the entity takes."""

    condition, status, is_retryable = "amqp:link:message-size-exceeded", 403, False


class Unauthorized(ServiceBusError):
    """No valid token, or a token without the right that the operation needs."""

    condition, status, is_retryable = "amqp:unauthorized-access", 401, False


class NotAllowed(ServiceBusError):
    """The entity's definition or the protocol forbids the operation."""

    condition, status, is_retryable = "amqp:not-allowed", 400, False


class NotImplementedHere(ServiceBusError):
    """A feature of Service Bus that the bridge does not have."""

    condition, status, is_retryable = "amqp:not-implemented", 501, False


class ArgumentError(ServiceBusError):
    """A field of the request is missing, malformed or of the wrong type."""

    condition, status, is_retryable = "com.microsoft:argument-error", 400, False


class ArgumentOutOfRange(ServiceBusError):
    """A field of the request is outside the range that Service Bus takes."""

    condition, status, is_retryable = "com.microsoft:argument-out-of-range", 400, False


class InvalidField(ServiceBusError):
    """A field of AMQP is missing, malformed, or where it must not be."""

    condition, status, is_retryable = "amqp:invalid-field", 400, False


class QuotaExceeded(ServiceBusError):
    """The entity is full."""

    condition, status, is_retryable = "amqp:resource-limit-exceeded", 403, True


class ServerBusy(ServiceBusError):
    """RabbitMQ takes no publishes at the moment (alarm, reconnect); come back later."""

    condition, status, is_retryable = "com.microsoft:server-busy", 503, True


class OperationTimeout(ServiceBusError):
    """The operation did not end within its time: it may have been carried out, or not."""

    condition, status, is_retryable = "com.microsoft:timeout", 408, True


class TransactionInDoubt(OperationTimeout):
    """Nobody knows yet whether the transaction is committed: it is carried out whole, or not."""

    is_retryable = False


class InternalError(ServiceBusError):
    """A fault of the bridge's own."""

    condition, status, is_retryable = "amqp:internal-error", 500, True
