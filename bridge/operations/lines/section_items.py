"""Items of a message's section: of what a peer has sent, all is shown."""

from __future__ import annotations

from bridge.wire.amqp10.whole import check, to_store
from bridge.wire.mapping.fields import MappingError, Span
from bridge.wire.mapping.sections import split_sections


def items_of(raw: bytes, code: int) -> list[Span]:
    """Return start and end of each item of a section's list or map, however many there are."""
    sections = split_sections(raw)
    try:
        return sections.items(code)
    except MappingError:  # more, or deeper ones, than the bridge takes apart
        _, at, end = sections.at[code]
    at += 3 if raw[at] < 0xD0 else 9  # behind constructor, size and count
    found = []
    while at < end:
        found.append((at, check(raw, at, end, to_store(len(raw)))))
        at = found[-1][1]
    return found
