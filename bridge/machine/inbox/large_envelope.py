"""An envelope of many messages: read and numbered in parts, in several turns of the event loop.

The whole envelope is checked before its first message is numbered: of one that cannot be read no
message is. The parts of one arrival keep the identities that the messages have in their envelope,
so a successor that gets the arrival again knows those that the journal has, whichever part they
were in.
"""

from __future__ import annotations

from bridge.machine.inbox.arrival import SendCommand, fold_key
from bridge.machine.inbox.stampable_items import make_ready
from bridge.wire.envelope import Items, sent_count

PART_MESSAGES = 100
"""Messages of a part, as of a full group (`engine.sending.groups`). An envelope with no more than
these is numbered at once."""

CHECKED_MESSAGES = 1_000
"""Messages that `LargeEnvelope.check` reads at a time."""


class LargeEnvelope:
    """The messages of one envelope.

    Args:
        body: the envelope.
        folds_keys: see `machine.inbox.arrival.read`.

    Attributes:
        is_checked: the envelope is whole, and `part` may be called.

    Raises:
        MalformedEnvelope: the bytes are no envelope of messages.
    """

    def __init__(self, body: bytes, *, folds_keys: bool) -> None:
        self.is_checked = False
        self._checked = Items(body)
        self._items = Items(body)
        self._folds_keys = folds_keys
        self._first = 0

    @property
    def is_over(self) -> bool:
        """Whether `part` has returned all messages."""
        return not self._items.left

    def check(self) -> None:
        """Check the next messages, until `is_checked`.

        Raises:
            MalformedEnvelope: the envelope is cut short, or too long.
        """
        self._checked.take(CHECKED_MESSAGES)
        self.is_checked = not self._checked.left

    def part(self) -> SendCommand:
        """Return the command of the next messages."""
        assert self.is_checked
        first = self._first
        items = self._items.take(PART_MESSAGES)
        self._first += len(items)
        refused = make_ready(items, first)
        if self._folds_keys:
            for item in items:
                fold_key(item)
        return SendCommand(self._items.identity, items, first=first, refused=refused)


def large_envelope(properties: bytes, body: bytes, *, folds_keys: bool) -> LargeEnvelope | None:
    """Return the large envelope that an arrival is; `None`: it is something else.

    Args:
        properties: the encoded properties, as RabbitMQ delivered them.
        body: the body, as RabbitMQ delivered it.
        folds_keys: see `machine.inbox.arrival.read`.
    """
    if sent_count(properties, body) <= PART_MESSAGES:
        return None
    return LargeEnvelope(body, folds_keys=folds_keys)
