"""Errors of a remote namespace, each with the condition that its server gave.

RemoteError
  RemoteUnauthorized    no token, a wrong one, or one without the right
  RemoteNotFound        no such entity, or no such message
  RemoteBusy            the server takes no more for a while
  RemoteTimeout         no answer, or no session, in time
  RemoteLockLost        the lock of a message or a session has ended
  RemoteLinkEnded       the server has detached the link
  RemoteConnectionLost  the connection has ended; what was under way may have been done
  RemoteRefused         the server will not do it, now or later
  RemoteOtherEntity     the connection string is for another entity; nothing was asked
"""

from __future__ import annotations

from itertools import pairwise

UNAUTHORIZED = "amqp:unauthorized-access"
CONNECTION_FORCED = "amqp:connection:forced"
DETACH_FORCED = "amqp:link:detach-forced"
SERVER_BUSY = "com.microsoft:server-busy"
TIMEOUT = "com.microsoft:timeout"
LOCK_LOST = "com.microsoft:message-lock-lost"
SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
NOT_REACHED = "busbridge:not-reached"
OTHER_ENTITY = "busbridge:other-entity"
SOURCE_UNKNOWN = "busbridge:source-unknown"
SUBSCRIPTION_UNKNOWN = "busbridge:subscription-unknown"
IMPORT_UNKNOWN = "busbridge:import-unknown"
"""Our own: no server was there to give a condition, or none was asked."""


class RemoteError(Exception):
    """What a remote namespace refuses, or a connection to it fails with.

    Attributes:
        condition: the AMQP error condition.
        description: the server's words.
        retryable: whether the same call can succeed later without any change.
        in_doubt: the call had reached the transport when its link or connection ended, or its time
            was over, and no answer came: it may have been done. Done again, it may be done twice.
    """

    retryable_by_default = False
    in_doubt = False

    def __init__(self, condition: str, description: str = "", retryable: bool | None = None):
        super().__init__(condition, description, retryable)
        self.condition = condition
        self.description = description
        self.retryable = self.retryable_by_default if retryable is None else retryable

    def __str__(self) -> str:
        return f"{self.description} ({self.condition})" if self.description else self.condition


class RemoteUnauthorized(RemoteError):
    """The server has refused the token, or the token gives no right to do this."""


class RemoteNotFound(RemoteError):
    """There is no such entity, or no message with this number in this state."""


class RemoteBusy(RemoteError):
    """The server takes no more for the moment; nothing was done unless it is `in_doubt`.

    Attributes:
        pause_s: how long the server asks to wait; 0 if it does not say.
    """

    retryable_by_default = True
    pause_s = 0.0


class RemoteTimeout(RemoteError):
    """The server, or the connection, gave no answer in time; `in_doubt`: it may have been done.

    For a receiver of the next session: no session had a message.
    """

    retryable_by_default = True


class RemoteLockLost(RemoteError):
    """The lock of a message or of a session has ended; the message will come again."""


class RemoteRefused(RemoteError):
    """The server refuses the call as it is: too large, a wrong argument, a disabled entity."""


class RemoteOtherEntity(RemoteError):
    """The connection string is for another entity (its `EntityPath`); nothing was asked."""


class RemoteLinkEnded(RemoteError):
    """The server has detached the link; locked messages of the link are locked until their ends.

    Azure detaches a link that was idle for ten minutes, with `amqp:link:detach-forced`.
    """

    retryable_by_default = True


class RemoteConnectionLost(RemoteError):
    """The connection has ended, or could not be made; `in_doubt`: a call may be done."""

    retryable_by_default = True

    def __init__(
        self,
        condition: str,
        description: str = "",
        retryable: bool | None = None,
        *,
        in_doubt: bool = False,
    ):
        super().__init__(condition, description, retryable)
        self.in_doubt = in_doubt


_CLASSES: dict[str, type[RemoteError]] = {
    UNAUTHORIZED: RemoteUnauthorized,
    "com.microsoft:auth-failed": RemoteUnauthorized,
    "amqp:not-found": RemoteNotFound,
    "com.microsoft:message-not-found": RemoteNotFound,
    "com.microsoft:entity-not-found": RemoteNotFound,
    SERVER_BUSY: RemoteBusy,
    TIMEOUT: RemoteTimeout,
    "com.microsoft:operation-cancelled": RemoteTimeout,
    LOCK_LOST: RemoteLockLost,
    SESSION_LOCK_LOST: RemoteLockLost,
    DETACH_FORCED: RemoteLinkEnded,
    "amqp:link:stolen": RemoteLinkEnded,
    CONNECTION_FORCED: RemoteConnectionLost,
    "amqp:connection:framing-error": RemoteConnectionLost,
}

_RETRYABLE = frozenset(
    {
        "amqp:internal-error",
        "com.microsoft:session-cannot-be-locked",
        "com.microsoft:store-lock-lost",
        "amqp:resource-limit-exceeded",
    }
)
"""Conditions that may pass by themselves (the SDKs' tables of transient errors)."""


def error_of(condition: str, description: str | None) -> RemoteError:
    """Return the error for a condition of the server's."""
    found = _CLASSES.get(condition, RemoteRefused)
    if found is RemoteRefused:
        return RemoteRefused(condition, description or "", condition in _RETRYABLE)
    error = found(condition, description or "")
    if isinstance(error, RemoteBusy):
        error.pause_s = _pause_s(description or "")
    return error


def answer_of(condition: str, description: str | None) -> RemoteError:
    """Return the error for a server's answer to a call that reached it.

    Of its own time-out Service Bus says that the call may have been done, or not: it is in doubt.
    """
    error = error_of(condition, description)
    error.in_doubt = isinstance(error, RemoteTimeout)
    return error


def _pause_s(description: str) -> float:
    """Return the pause in "Please wait 2 seconds and try again." (Service Bus, throttling)."""
    words = description.split()
    for number, unit in pairwise(words):
        if number.isdecimal() and unit.startswith("second"):
            return float(number)
    return 0.0
