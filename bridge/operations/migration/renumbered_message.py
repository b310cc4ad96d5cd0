"""A message under a new number, which says what it was, and as it was again.

Its application properties have the old number, behind those of earlier ways as a relay writes them,
and the run; for a copy of a subscription's with its EnqueuedSequenceNumber.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from bridge.operations.migration.copy_effects import CopyPlace, CopyStopped, PeekedMessage, peeked
from bridge.operations.migration.state_counts import sent_bytes
from bridge.relay.plan.encoded_map import EncodedMap
from bridge.relay.plan.relayed_message import SEQUENCE
from bridge.remote.message import RemoteMessage
from bridge.wire import headers
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.primitives import encode_long, encode_string, encode_symbol
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.sections import APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS

RENUMBERED: Final = "busbridge-renumbered"
"""The run that gave the number, and behind `/` the EnqueuedSequenceNumber that a copy of a topic
had, or `-` for none; behind those of earlier runs, with `;` between them."""

ADDED_BYTES_MAX: Final = 512
"""More than the two properties take that a copy has, or what is put behind their earlier texts."""

_NONE: Final = "-"


def unsayable(message: RemoteMessage) -> str:
    """Return the application property by which a message cannot say what number it had.

    "": it can, or cannot be read at all. The property is of another type than text, so that nothing
    is put behind it.
    """
    try:
        values = message.application_property_values
    except DecodeError:
        return ""  # it has no number either, which is named
    return next(
        (each for each in (SEQUENCE, RENUMBERED) if not isinstance(values.get(each, ""), str)), ""
    )


def check_renumberable(place: CopyPlace, message: RemoteMessage) -> None:
    """See that a message of the source can say what it was.

    Raises:
        CopyStopped: a property that would say it has another type.
    """
    if name := unsayable(message):
        raise CopyStopped(f"{place.path}: {unsayable_text(1, message.sequence_number, name)}")


def unsayable_text(count: int, number: int | None, name: str) -> str:
    """Return why messages get no new number: there is no place for the old one.

    Args:
        count: how many there are.
        number, name: of the first one, its number and the application property.
    """
    who, have, their, them = f"message {number}", "has", "its", "it"
    if count > 1:
        who = f"{count:,} messages, of which {number} is the first,"
        have, their, them = "have", "the", "them"
    return (
        f"{who} {have} an application property {name!r} that is no text, where {their} old number "
        f"would stand: receive {them} first."
    )


def renumbered(
    message: RemoteMessage, place: CopyPlace, old: int, number: int, order: int | None
) -> RemoteMessage:
    """Return a message of the source under a new number.

    Args:
        old: the number that it had.
        order: its new EnqueuedSequenceNumber; `None`: it stays.
    """
    values = message.application_property_values
    mark = place.renumbered_by
    put_long = {headers.SEQUENCE_NUMBER: number}
    if order is not None:
        was = message.enqueued_sequence_number
        mark += f"/{_NONE if was is None else was}"
        put_long[headers.ENQUEUED_SEQUENCE_NUMBER] = order
    return _changed(
        message,
        put_long,
        {
            SEQUENCE: _appended(values.get(SEQUENCE), str(old)),
            RENUMBERED: _appended(values.get(RENUMBERED), mark),
        },
    )


def copy_bytes(message: RemoteMessage, place: CopyPlace) -> int:
    """Return the size of a message's copy, as `sent_bytes`: with what says what it was.

    One that cannot say it has its own size.
    """
    try:
        check_renumberable(place, message)
        old = message.sequence_number or 0
        order = 0 if place.is_ordered_by_topic else None
        return sent_bytes(renumbered(message, place, old, old, order))
    except (CopyStopped, DecodeError, MappingError):
        return sent_bytes(message)


def check_size(place: CopyPlace, message: RemoteMessage, most_bytes: int) -> None:
    """See that the target takes a message's copy by its size.

    Args:
        most_bytes: what the largest message has there.

    Raises:
        CopyStopped: it does not.
    """
    if message.size_bytes + ADDED_BYTES_MAX <= most_bytes:
        return
    size_bytes = copy_bytes(message, place)
    if size_bytes > most_bytes:
        raise CopyStopped(
            f"{place.path}: message {message.sequence_number} has {sent_bytes(message):,} bytes, "
            f"its copy, which says what number it had, {size_bytes:,}, and the target takes "
            f"{most_bytes:,}: receive it first. A target of the Premium tier takes more."
        )


def original(message: RemoteMessage, place: CopyPlace) -> RemoteMessage | None:
    """Return a message of the target as it was at the source; `None`: it is no copy."""
    try:
        values = message.application_property_values
        mark, earlier_mark = _last(values.get(RENUMBERED))
        old, earlier = _last(values.get(SEQUENCE))
        run, _, order = mark.partition("/")
        if run != place.renumbered_by or not _is_number(old):
            return None
        put_long = {headers.SEQUENCE_NUMBER: int(old)}
        if _is_number(order):
            put_long[headers.ENQUEUED_SEQUENCE_NUMBER] = int(order)
        dropped = {headers.ENQUEUED_SEQUENCE_NUMBER} if order == _NONE else set()
        texts = {SEQUENCE: earlier, RENUMBERED: earlier_mark}
        return _changed(message, put_long, texts, dropped)
    except (DecodeError, MappingError):
        return None


def peeked_copy(
    message: RemoteMessage, place: CopyPlace, *, is_noted: bool = True
) -> PeekedMessage:
    """Return what a copy has to know of a message of the target: under the number that it had.

    Its order is the one that it has now. What the run has not brought is the target's own.
    """
    shown = peeked(message, is_dead=place.is_dead, is_noted=False)
    found = original(message, place)
    if found is None:
        return replace(shown, is_own=True)
    was = peeked(found, is_dead=place.is_dead, is_noted=is_noted)
    return replace(was, target_number=shown.number, order=shown.order)


def _changed(
    message: RemoteMessage,
    annotations: dict[str, int],
    properties: dict[str, str | None],
    dropped: Collection[str] = (),
) -> RemoteMessage:
    """Return a message with other annotations and texts; `None`: without that one.

    Args:
        dropped: annotations that it has no more.
    """
    pairs = EncodedMap(message.application_properties, APPLICATION_PROPERTIES)
    return replace(
        message,
        annotations=EncodedMap(message.annotations, MESSAGE_ANNOTATIONS).changed(
            drop={name.encode() for name in dropped},
            put={name.encode(): encode_long(value) for name, value in annotations.items()},
            as_key=encode_symbol,
        ),
        application_properties=pairs.changed(
            drop={name.encode() for name, text in properties.items() if text is None},
            put={
                name.encode(): encode_string(text.encode())
                for name, text in properties.items()
                if text is not None
            },
            as_key=encode_string,
        ),
    )


def _appended(earlier: str | None, text: str) -> str:
    return text if earlier is None else f"{earlier};{text}"


def _last(text: object) -> tuple[str, str | None]:
    """Return the last part of a text, and what stood there before it; `None`: nothing."""
    if not isinstance(text, str):
        return "", None
    earlier, separator, last = text.rpartition(";")
    return last, earlier if separator else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
