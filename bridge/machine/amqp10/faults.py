"""Faults of a peer, by the part of the connection that ends.

Fault
  ConnectionFault   the connection is closed
  SessionFault      the session is ended
  LinkFault         the link is detached
"""

from __future__ import annotations

from bridge.wire.amqp10.performatives import Error

FRAMING_ERROR = "amqp:connection:framing-error"
DECODE_ERROR = "amqp:decode-error"
ILLEGAL_STATE = "amqp:illegal-state"
INVALID_FIELD = "amqp:invalid-field"
CONNECTION_FORCED = "amqp:connection:forced"
WINDOW_VIOLATION = "amqp:session:window-violation"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"
INTERNAL_ERROR = "amqp:internal-error"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
DETACH_FORCED = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"


class AmqpFault(Exception):
    """A broken rule; `error` is the answer to the peer."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.error = make_error(condition, description)


class ConnectionFault(AmqpFault):
    """Ends the connection."""


class SessionFault(AmqpFault):
    """Ends the session."""


class LinkFault(AmqpFault):
    """Ends the link."""


def make_error(condition: str, description: str) -> Error:
    """Return an error with all three fields: the Python SDK reads the third without asking."""
    return Error(condition, description, {})
