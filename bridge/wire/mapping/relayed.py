"""The annotations of a relay's copy: taken off on a relay's link, refused everywhere else."""

from __future__ import annotations

from typing import Final

from bridge.model.errors import InvalidField
from bridge.wire import relay_source
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.fields import map_items, textual

_LONGS: Final = (0x81, 0x55)
_TIMESTAMP: Final = 0x83

_CODES: Final = {
    relay_source.SOURCE_NUMBER.encode(): _LONGS,
    relay_source.SOURCE_TIME.encode(): (_TIMESTAMP,),
    relay_source.SOURCE_LOWEST.encode(): _LONGS,
}
"""Annotation -> the constructors that its value may have, all of signed numbers."""


def check_allowed(annotation: bytes) -> None:
    """Refuse an annotation of a relay's copy: the link has not named a source.

    Raises:
        InvalidField: it is one.
    """
    if annotation in _CODES:
        name = annotation.decode()
        raise InvalidField(f"The annotation '{name}' may come only on a link that names a source.")


def without_source(raw: bytes, source: bytes) -> tuple[bytes, bytes]:
    """Return a relay's copy without its annotations, and what they say (`wire.relay_source`).

    Only they are looked at: what is returned is to be read as any message.

    Args:
        raw: the encoded message.
        source: the digest of the source's name.

    Raises:
        MappingError: the bytes are no message.
        InvalidField: an annotation is missing, comes twice, or is not right.
    """
    at = part.annotations_at(raw)
    values: dict[bytes, int] = {}
    kept: list[tuple[bytes, bytes]] = []
    for key, (start, end) in [] if at is None else map_items(raw, at[1]):
        name = textual(raw, *key) or b""
        codes = _CODES.get(name)
        if codes is None:
            kept.append((raw[key[0] : key[1]], raw[start:end]))
        elif raw[start] not in codes or name in values:
            raise InvalidField(f"The annotation '{name.decode()}' is not right.")
        else:
            values[name] = int.from_bytes(raw[start + 1 : end], "big", signed=True)
    if at is None or len(values) < len(_CODES):
        missing = next(name.decode() for name in _CODES if name not in values)
        raise InvalidField(f"The message has no annotation '{missing}': its link names a source.")
    number, enqueued_ms, lowest = [values[name] for name in _CODES]
    try:
        said = relay_source.say(source, number, enqueued_ms, lowest)
    except ValueError as error:
        raise InvalidField(f"The annotations of a relay's copy are not right: {error}.") from None
    return part.with_annotations(raw, at, kept), said
