"""Sources and targets of our attaches (part 3, section 3.5): what is in force, and nothing else.

A peer's attach says what it asks for. What is repeated in the answer is a promise, so the answer is
made anew. Of a terminus at the peer's end it has the address alone. Nothing of a link is kept when
it is detached, so a terminus is not durable, and its expiry is the specification's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.wire.amqp10.performatives import Coordinator, Source, Target

UNSETTLED: Final = 0
SETTLED: Final = 1
"""snd-settle-mode (part 2, 2.8.2)."""

FIRST: Final = 0
SECOND: Final = 1
"""rcv-settle-mode (part 2, 2.8.3): the receiver settles at once, or when the sender has settled."""

MOVE: Final = "move"
"""distribution-mode (part 3, 3.5.7): what one receiver has, no other gets."""

OUTCOMES: Final = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)
"""The outcomes that a receiver of ours may choose (part 3, 3.4)."""


def our_source(asked: Any, filters: Mapping[Any, Any] | None) -> Source | None:
    """Return the source of a link on which we send.

    Args:
        asked: the source in the peer's attach.
        filters: the filters in force, by name.
    """
    if not isinstance(asked, Source):
        return None
    return Source(
        asked.address,
        distribution_mode=MOVE if asked.distribution_mode == MOVE else None,
        filter=None if filters is None else dict(filters),
        outcomes=tuple(each for each in asked.outcomes or () if each in OUTCOMES) or None,
    )


def their_source(given: Any) -> Source | None:
    """Return the peer's source, for our answer."""
    return Source(given.address) if isinstance(given, Source) else None


def target(given: Any) -> Target | Coordinator | None:
    """Return a target for our answer, ours or the peer's; a coordinator's has no capabilities."""
    if isinstance(given, Coordinator):
        return Coordinator()
    return Target(given.address) if isinstance(given, Target) else None
