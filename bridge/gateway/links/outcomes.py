"""Conversion of a client's outcome into the engine's disposition and the answering outcome."""

from __future__ import annotations

from typing import Any

from bridge.engine.api import Abandon, Complete, DeadLetter, Defer, Disposition, Release
from bridge.model.errors import ArgumentError
from bridge.wire.amqp10.errors import EncodeError
from bridge.wire.amqp10.performatives import (
    Accepted,
    Error,
    Modified,
    Outcome,
    Rejected,
    Released,
)
from bridge.wire.amqp10.writing import encode
from bridge.wire.basic import Table
from bridge.wire.headers import DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON
from bridge.wire.link_properties import DEAD_LETTER
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.inward import properties_from_map


def disposition_of(outcome: Any) -> tuple[Disposition, Outcome]:
    """Return the engine's disposition of an outcome, and the outcome that answers the client.

    Raises:
        ArgumentError: Service Bus has no such outcome.
    """
    match outcome:
        case Accepted():
            return Complete(), Accepted()
        case Released():
            return Release(), Released()
        case Modified(undeliverable_here=True):
            done = Modified(outcome.delivery_failed, True)
            return Defer(properties=changes(outcome.message_annotations)), done
        case Modified():
            done = Modified(outcome.delivery_failed, False)
            return Abandon(properties=changes(outcome.message_annotations)), done
        case Rejected():
            return _dead_letter(outcome.error), Rejected()
        case _:
            raise ArgumentError(f"{outcome!r} is no outcome.")


def _dead_letter(error: Any) -> DeadLetter:
    if not isinstance(error, Error):
        return DeadLetter()
    if error.condition != DEAD_LETTER:
        return DeadLetter(reason=error.condition, description=error.description)
    info = dict(error.info or {})
    return DeadLetter(
        reason=_text(info, DEAD_LETTER_REASON),
        description=_text(info, DEAD_LETTER_ERROR_DESCRIPTION),
        properties=changes(info),
    )


def _text(info: dict[Any, Any], name: str) -> str | None:
    """Take a text out of what a client says; what is none stays there, as a property."""
    if not isinstance(info.get(name), str | None):
        return None
    value = info.pop(name, None)
    return None if value is None else str(value)


def changes(properties: Any) -> Table:
    """Return the properties to change, each with its AMQP type.

    Raises:
        ArgumentError: the properties are no map with textual keys.
    """
    if not properties:
        return {}
    try:
        return properties_from_map(encode(properties))
    except (MappingError, EncodeError) as error:
        raise ArgumentError(f"The properties to modify cannot be read: {error}.") from error
