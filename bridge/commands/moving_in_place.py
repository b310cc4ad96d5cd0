"""Moves scheduled messages at a busbridge, where the old and the new one are never both there."""

from __future__ import annotations

from typing import Final

from bridge.commands.cancelling import NOT_FOUND, TRIES
from bridge.commands.clock import now_ms
from bridge.operations.scheduled_selection import MARGIN_MS
from bridge.remote.errors import RemoteError, RemoteNotFound, RemoteRefused
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage

UNKNOWN: Final = 0
"""For the number of a message that is moved, when the answer that had it is lost."""


class NotInPlace(Exception):
    """A message was not moved; the text says why."""


async def moves_in_place(management: RemoteManagement) -> bool:
    """Return whether the namespace can do it at this entity; raises RemoteError."""
    try:
        await management.move_scheduled((), ())
    except RemoteRefused:
        return False
    return True


async def move_in_place(
    management: RemoteManagement, number: int, was_ms: int, message: RemoteMessage
) -> int:
    """Have a message take the place of a scheduled one; where no answer comes it is asked again.

    Args:
        was_ms: when the scheduled one is due, UTC ms.

    Returns:
        The new number; `UNKNOWN` if the answer is lost.

    Raises:
        NotInPlace: the scheduled one was due meanwhile.
        RemoteError: it is refused; `in_doubt`: it may be moved. It is there once, either way.
    """
    is_doubted = False
    for left in reversed(range(TRIES)):
        try:
            (new,) = await management.move_scheduled([number], [message])
        except RemoteNotFound as error:
            if error.condition != NOT_FOUND:
                raise
            if not is_doubted:
                raise NotInPlace("it was due meanwhile") from None
            if was_ms > now_ms() + MARGIN_MS:
                return UNKNOWN
            raise NotInPlace(
                "the connection ended while it was due: it was enqueued, or moved, and is there "
                "once"
            ) from None
        except RemoteError as error:
            is_doubted = is_doubted or error.in_doubt
            if not left or not error.in_doubt:
                error.in_doubt = is_doubted
                raise
        else:
            return new
    raise AssertionError("the last try returns or raises")
