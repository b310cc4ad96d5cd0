"""The ways to settle a message, as values, and their AMQP outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.wire.amqp10.performatives import Accepted, Error, Modified, Outcome, Rejected, Released
from bridge.wire.amqp10.scalars import Symbol
from bridge.wire.headers import DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON
from bridge.wire.link_properties import DEAD_LETTER

Properties = Mapping[str, Any]
"""Application properties to set, with AMQP's types."""


@dataclass(frozen=True, slots=True)
class Complete:
    """The message is done with: it leaves the entity."""


@dataclass(frozen=True, slots=True)
class Release:
    """Give the message back as it was: its delivery is not counted."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Give the message back: its delivery is counted, and properties may be set."""

    properties: Properties | None = None


@dataclass(frozen=True, slots=True)
class Defer:
    """Set the message aside: it is received by its sequence number alone."""

    properties: Properties | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Move the message to the dead-letter queue."""

    reason: str | None = None
    description: str | None = None
    properties: Properties | None = None


RemoteOutcome = Complete | Release | Abandon | Defer | DeadLetter


def amqp_outcome(outcome: RemoteOutcome) -> Outcome:
    """Return the AMQP outcome, as the SDKs write it."""
    match outcome:
        case Complete():
            return Accepted()
        case Release():
            return Released()
        case Abandon(properties):
            return Modified(True, False, _fields(properties))
        case Defer(properties):
            return Modified(True, True, _fields(properties))
        case DeadLetter(reason, description, properties):
            info = dict(_fields(properties) or {})
            if reason is not None:
                info[Symbol(DEAD_LETTER_REASON)] = reason
            if description is not None:
                info[Symbol(DEAD_LETTER_ERROR_DESCRIPTION)] = description
            return Rejected(Error(DEAD_LETTER, None, info))


def _fields(properties: Properties | None) -> dict[Any, Any] | None:
    if not properties:
        return None
    return {Symbol(name): value for name, value in properties.items()}
