"""What a sender is told of a publish, and an asker of a question, in Azure's words."""

from __future__ import annotations

from bridge.broker.errors import BrokerError, HeaderTooLarge
from bridge.engine import texts
from bridge.model.errors import (
    InternalError,
    MessageSizeExceeded,
    OperationTimeout,
    ServerBusy,
    ServiceBusError,
)
from bridge.wire.reply import Refusal


def busy(reason: str) -> ServerBusy:
    """Return the error of a publish that RabbitMQ does not take now: nothing is stored."""
    return ServerBusy(texts.busy(reason))


def refusal(error: BrokerError) -> ServiceBusError:
    """Return the error of a publish of which nothing is stored (`broker.errors.is_refused`)."""
    if isinstance(error, HeaderTooLarge):
        return MessageSizeExceeded(str(error))
    return busy(str(error))


def unknown(reason: object) -> OperationTimeout:
    """Return the error of a publish, or a question, whose outcome is unknown."""
    return OperationTimeout(texts.unknown(reason))


def error_of(reply: Refusal) -> ServiceBusError:
    """Return the error that another process reported."""
    kinds = (each for each in ServiceBusError.__subclasses__() if each.condition == reply.condition)
    return next(kinds, InternalError)(reply.description)
