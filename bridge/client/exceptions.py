"""The library's errors under the SDK's names, and the mapping from the model's errors."""

from __future__ import annotations

from bridge.model import errors as model
from bridge.topology.capabilities import Capabilities, UnsupportedVersion


class ServiceBusError(Exception):
    """A refusal by Service Bus or RabbitMQ, or a failed connection.

    Attributes:
        message: the description.
    """

    _retryable = False

    def __init__(self, message: str = "", *, error: BaseException | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.inner_exception = error


class ServiceBusConnectionError(ServiceBusError):
    """No connection to RabbitMQ, or a lost one; the text names what is unknown."""

    _retryable = True


class OutcomeUnknownError(ServiceBusConnectionError):
    """The connection was lost after a publish: RabbitMQ may have the message, or not."""

    _retryable = False


class ServiceBusCommunicationError(ServiceBusError):
    """No bridge answers."""

    _retryable = True


class ServiceBusAuthenticationError(ServiceBusError):
    """RabbitMQ refuses the login."""


class UnsupportedRabbitMQError(ServiceBusError):
    """RabbitMQ is older than 4.0; no bridge runs there."""

    @classmethod
    def of(cls, version: object) -> UnsupportedRabbitMQError | None:
        """Return the error for a RabbitMQ of this version; None when it will do."""
        try:
            Capabilities.served(str(version))
        except UnsupportedVersion as error:
            return cls(f"{error}.")
        return None


class ServiceBusAuthorizationError(ServiceBusError):
    """RabbitMQ's permissions do not allow the operation."""


class OperationTimeoutError(ServiceBusError):
    """The operation did not end in time; it may have been carried out, or not."""


class MessageSizeExceededError(ServiceBusError, ValueError):
    """The message, or a batch, is larger than the entity takes."""


class MessageAlreadySettled(ValueError):
    """The message was completed, abandoned, deferred or dead-lettered before."""


class MessageLockLostError(ServiceBusError):
    """The lock has ended: by time, or with its connection."""


class SessionLockLostError(ServiceBusError):
    """The session's lock has ended."""


class SessionCannotBeLockedError(ServiceBusError):
    """Another receiver holds the session."""

    _retryable = True


class MessageNotFoundError(ServiceBusError):
    """No message has this sequence number."""


class MessagingEntityNotFoundError(ServiceBusError):
    """The queue, topic or subscription does not exist."""


class MessagingEntityDisabledError(ServiceBusError):
    """The entity's status forbids the operation."""


class MessagingEntityAlreadyExistsError(ServiceBusError):
    """An entity or rule of this name exists already."""


class ServiceBusQuotaExceededError(ServiceBusError):
    """The entity is full."""


class ServiceBusServerBusyError(ServiceBusError):
    """RabbitMQ takes no messages at the moment; retry later."""

    _retryable = True


class AutoLockRenewFailed(ServiceBusError):
    """A lock could not be renewed."""


class AutoLockRenewTimeout(ServiceBusError):
    """The duration of a lock's renewal is over."""


_OF_MODEL: dict[type[model.ServiceBusError], type[ServiceBusError]] = {
    model.EntityNotFound: MessagingEntityNotFoundError,
    model.EntityAlreadyExists: MessagingEntityAlreadyExistsError,
    model.EntityDisabled: MessagingEntityDisabledError,
    model.MessageNotFound: MessageNotFoundError,
    model.MessageLockLost: MessageLockLostError,
    model.SessionLockLost: SessionLockLostError,
    model.SessionCannotBeLocked: SessionCannotBeLockedError,
    model.MessageSizeExceeded: MessageSizeExceededError,
    model.Unauthorized: ServiceBusAuthorizationError,
    model.QuotaExceeded: ServiceBusQuotaExceededError,
    model.ServerBusy: ServiceBusServerBusyError,
    model.OperationTimeout: OperationTimeoutError,
}

_OF_CONDITION = {made.condition: ours for made, ours in _OF_MODEL.items()}


def of_model(error: model.ServiceBusError) -> ServiceBusError:
    """Return the SDK's error for an error of the model."""
    return _OF_MODEL.get(type(error), ServiceBusError)(str(error), error=error)


def of_condition(condition: str, description: str) -> ServiceBusError:
    """Return the SDK's error for a condition in another process's answer."""
    return _OF_CONDITION.get(condition, ServiceBusError)(description)
