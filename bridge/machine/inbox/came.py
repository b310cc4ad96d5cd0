"""What a message is to an entity to which another one has sent it: new, or there before."""

from __future__ import annotations

from enum import Enum

TOO_LATE = "RelayedTooLate"
TOO_LATE_DESCRIPTION = (
    "The relay, or another one of the same source, has said that this message could not come any "
    "more. It may have been relayed before: look for its MessageId, or the number in its property "
    "'repl-sequence'. If it is not there, send it again from here. Look whether two namespaces "
    "have one 'id' in the files of relays."
)
"""Reason and description of the dead letter of a copy that is `Came.TOO_LATE`."""


class Came(Enum):
    """What a forwarded message, or a relay's copy, is to its target.

    Attributes:
        FIRST: it was not there before.
        AGAIN: it was.
        TOO_LATE: it was and is forgotten, or it was not, and its relay is wrong.
    """

    FIRST = 0
    AGAIN = 1
    TOO_LATE = 2
