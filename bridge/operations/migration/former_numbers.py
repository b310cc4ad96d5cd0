"""The numbers that a message had before it was moved under a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.operations.migration.renumbered_message import RENUMBERED
from bridge.relay.plan.relayed_message import MARKER, SEQUENCE
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.errors import DecodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerNumber:
    """The number that a message had where it was before.

    Attributes:
        number: `None`: what stands in its place is no number.
        before: what stands for earlier places, the first one first; other texts than numbers, too.
        says: all of the property, where the number cannot be told.
        source: where it had the number: the run that gave the new one, or the entity that a relay
            took it from; both, where a message has come by both; "" where it does not say.
    """

    number: int | None
    before: tuple[int | str, ...] = ()
    says: str = ""
    source: str = ""


def former_number(message: RemoteMessage) -> FormerNumber | None:
    """Return what number a message had; `None` for one that was sent where it is."""
    try:
        values = message.application_property_values
    except DecodeError:
        return FormerNumber(number=None, says="properties that cannot be read")
    if SEQUENCE not in values:
        return None
    found, source = values[SEQUENCE], _source(values)
    if not isinstance(found, str):
        return FormerNumber(number=None, says=f"{found!r}, which is no text", source=source)
    *before, last = (_number(each.strip()) for each in found.split(";"))
    if isinstance(last, str):
        return FormerNumber(number=None, says=repr(found), source=source)
    return FormerNumber(number=last, before=tuple(before), source=source)


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() else text


def _source(values: Mapping[str, object]) -> str:
    """Return the last entity of a relay's marker, and the last run that gave new numbers."""
    lasts = []
    for name in (MARKER, RENUMBERED):
        found = values.get(name)
        last = found.rpartition(";")[2] if isinstance(found, str) else ""
        lasts.append(last.partition("/")[0] if name == RENUMBERED else last)
    return ", ".join(filter(None, lasts))
