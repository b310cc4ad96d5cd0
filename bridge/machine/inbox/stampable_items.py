"""The items of an envelope, made ready for the stamp: RabbitMQ surely takes their properties."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.wire.basic import Properties, with_fields
from bridge.wire.canonical import is_canonical
from bridge.wire.envelope import Item, MalformedEnvelope
from bridge.wire.native import clean
from bridge.wire.relay_source import field, said_in_front, target_in_front

PROPERTIES_BYTES_MAX = 120_000
"""A message's properties are one frame, and the stamp must fit in too: RabbitMQ closes the whole
connection over a header frame above 131,064 bytes (measured on 4.0 and 4.3)."""

BARE = Properties(delivery_mode=2).encode()
"""Replaces properties that cannot be passed on."""


def make_ready(
    items: Sequence[Item], first: int = 0, *, is_whole: bool = False
) -> tuple[tuple[int, str], ...]:
    """Make the properties of an envelope's items ready for the stamp.

    Args:
        first: the place of the first item in its envelope.
        is_whole: an item that cannot be read makes the envelope unreadable.

    Returns:
        The place and a description of each item that cannot be read, for `SendCommand.refused`: the
        senders of the others know nothing of it.
    """
    refused: list[tuple[int, str]] = []
    for index, item in enumerate(items, first):
        try:
            _make_ready(item)
        except Exception as error:
            if is_whole:
                raise
            refused.append((index, f"The message cannot be read: {error}"[:500]))
            item.properties = BARE
    return tuple(refused)


def _make_ready(item: Item) -> None:
    """Make the properties of an item ready for the stamp."""
    if len(item.properties) > PROPERTIES_BYTES_MAX:
        raise MalformedEnvelope("its messages have too large properties")
    if is_canonical(item.properties):
        return
    relayed = said_in_front(item.properties)
    if relayed is not None:
        aimed = target_in_front(relayed[1])
        bare = relayed[1] if aimed is None else aimed[1]
        if is_canonical(bare):
            item.source = relayed[0]
            if aimed is not None:
                item.target = aimed[0]
                item.properties = with_fields(bare, field(relayed[0]))
            return
    native = clean(Properties.decode(item.properties))
    if len(native.properties) > PROPERTIES_BYTES_MAX:
        raise ValueError("an envelope's message has too large properties")
    item.properties = native.properties
