"""The errors between the bridge and RabbitMQ.

    BrokerError
      ConnectionLost            the connection is gone, or could not be made
        TooOld                  RabbitMQ is older than 4.0
        LoginRefused            user, password, certificate or virtual host is wrong
        TlsRefused              one side does not take the other's certificate
        ManagementSilent        no management API answers
      BrokerSilent              no answer, or no confirm, within the deadline
      NotStored                 no queue has the message, and none will have it
        WriteBufferFull         RabbitMQ has not read what was written so far
        HeaderTooLarge          properties that no frame holds; nothing was published
        PublishRefused          basic.nack: a queue is full, or a leader is missing
        Unroutable              basic.return: no queue took the message
      AckLost                   published and confirmed, but not acked: it is in both places now
      ManagementRefused         the management API answered with an HTTP error
      NodeFailed                a private RabbitMQ does not start
      ChannelClosed             RabbitMQ (or the bridge) closed the channel
        AccessRefused           403
        NotFound                404
        ResourceLocked          405
        PreconditionFailed      406

A publish, or a hand-over, has one of three outcomes: stored (no error), refused for sure
(`is_refused`), or unknown (any other error: RabbitMQ may have the message, or store it later). Who
is told "unknown" must not say "refused" to anybody.

Codes are those of https://www.rabbitmq.com/amqp-0-9-1-reference#constants.
"""

from __future__ import annotations

import ssl

from bridge.background.errors import OutsideError

_INTERNAL_ERROR = 541

_MISSING = (312, 404)
"""The reply codes of basic.return (NO_ROUTE) and of a channel that is closed (NOT_FOUND)."""


class BrokerError(OutsideError):
    """An operation that RabbitMQ refused or could not do.

    Attributes:
        code: AMQP 0-9-1 reply code, 0 when RabbitMQ sent none.
        text: RabbitMQ's words, or the bridge's.
        is_retryable: whether the same operation can succeed later, perhaps on a new channel.
        is_partial: another publish of the same hand-over is stored, or may be.
    """

    is_retryable = True
    is_partial = False

    def __init__(self, code: int = 0, text: str = "") -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code} {self.text}" if self.code else self.text

    @property
    def is_missing(self) -> bool:
        """Whether a queue, an exchange or a binding was missing, by RabbitMQ's reply code.

        The kind of error does not tell: a publish that RabbitMQ has refused for a missing exchange
        is `NotStored`.
        """
        return self.code in _MISSING

    def again(self) -> BrokerError:
        """Return an equal error, to be raised at another place with a traceback of its own."""
        error = type(self)(self.code, self.text)
        error.__cause__ = self.__cause__
        return error


class ConnectionLost(BrokerError):
    """The connection to RabbitMQ has ended, or could not be made."""

    @property
    def is_internal(self) -> bool:
        """Whether RabbitMQ has failed over what was asked; other connections may be well."""
        return self.code == _INTERNAL_ERROR


class TooOld(ConnectionLost):
    """RabbitMQ is older than the bridge needs; the text names both versions."""

    is_retryable = False


class LoginRefused(ConnectionLost):
    """RabbitMQ refused the login: user, password, certificate or virtual host is wrong."""

    is_retryable = False


class TlsRefused(ConnectionLost):
    """TLS is not possible: one side does not accept the other's certificate."""

    is_retryable = False

    @classmethod
    def of(cls, error: ssl.SSLError) -> TlsRefused:
        """Return a TlsRefused with the text of OpenSSL's error."""
        words = getattr(error, "verify_message", "") or (error.reason or str(error))
        return cls(text=f"TLS: {words.replace('_', ' ').lower()}")


class ManagementSilent(ConnectionLost):
    """No host has a management API that answers."""


class BrokerSilent(BrokerError):
    """RabbitMQ did not answer or confirm in time; whether the operation was done is unknown."""


class NotStored(BrokerError):
    """The message was not written, or RabbitMQ has not taken it: certainly nothing is stored."""

    @classmethod
    def because(cls, error: BrokerError) -> NotStored:
        """Return a NotStored with the code and text of the error that is its cause."""
        refusal = cls(error.code, error.text)
        refusal.__cause__ = error
        return refusal


class WriteBufferFull(NotStored):
    """RabbitMQ has not read too many of the written bytes yet; nothing was published."""


class HeaderTooLarge(NotStored):
    """No frame holds these properties: RabbitMQ would end the connection (501 FRAME_ERROR)."""

    is_retryable = False


class PublishRefused(NotStored):
    """RabbitMQ refused a message (basic.nack)."""


class Unroutable(NotStored):
    """No queue is bound where a mandatory message went (basic.return); RabbitMQ dropped it."""


class AckLost(BrokerError):
    """A hand-over was confirmed but its ack could not be sent: the message is in both places."""


class ManagementRefused(BrokerError):
    """The management API refused a request; `code` is the HTTP status."""

    @property
    def is_retryable(self) -> bool:  # type: ignore[override]
        """Whether the status is a server error (5xx), which may pass; a client error does not."""
        return self.code >= 500


class NodeFailed(BrokerError):
    """A private RabbitMQ cannot be started, or has ended by itself."""

    is_retryable = False


class ChannelClosed(BrokerError):
    """The channel is closed; its unacked messages go back to their queues."""


class AccessRefused(ChannelClosed):
    """The user has no permission for the operation."""

    is_retryable = False


class NotFound(ChannelClosed):
    """The queue or exchange does not exist."""

    is_retryable = False

    @property
    def says_none(self) -> bool:
        """Whether RabbitMQ knows of none.

        It answers likewise for a queue that exists and cannot be reached now: one that has stopped,
        is on a node that is down, or gives no answer.
        """
        return "no queue " in self.text or "no exchange " in self.text


class ResourceLocked(ChannelClosed):
    """Another connection uses the resource exclusively."""


class PreconditionFailed(ChannelClosed):
    """The resource exists with other settings, or an argument is not valid."""

    is_retryable = False


_BY_CODE: dict[int, type[ChannelClosed]] = {
    403: AccessRefused,
    404: NotFound,
    405: ResourceLocked,
    406: PreconditionFailed,
}


def channel_closed(code: int, text: str) -> ChannelClosed:
    """Return the error for the reply code of RabbitMQ's channel.close."""
    return _BY_CODE.get(code, ChannelClosed)(code, text)


def is_refused(error: BaseException) -> bool:
    """Return whether this outcome says that nothing is stored, and that nothing will be."""
    return isinstance(error, NotStored) and not error.is_partial
