"""Cancels scheduled messages one by one, so that it is known of each what became of it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from bridge.commands.clock import now_ms
from bridge.commands.errors import sentence_of
from bridge.operations.scheduled_selection import MARGIN_MS
from bridge.remote.errors import RemoteError, RemoteNotFound

if TYPE_CHECKING:
    from bridge.remote.management import RemoteManagement

TRIES: Final = 3
NOT_FOUND: Final = "com.microsoft:message-not-found"


class Cancelled(Enum):
    """What became of a message.

    Attributes:
        CANCELLED: it is not enqueued any more.
        NOT_SCHEDULED: it was enqueued before, or was never scheduled.
        UNSURE: a connection ended meanwhile, and it is gone: it was cancelled, or enqueued.
    """

    CANCELLED = "cancelled"
    NOT_SCHEDULED = "not scheduled"
    UNSURE = "unsure"


async def cancel(management: RemoteManagement, number: int, due_ms: int | None) -> Cancelled:
    """Cancel a message; where no answer comes it is asked again.

    Args:
        due_ms: when it is due, UTC ms; `None`: it is not known.

    Raises:
        RemoteError: it is refused; `in_doubt`: it may be cancelled.
    """
    is_doubted = False
    for left in reversed(range(TRIES)):
        try:
            await management.cancel([number])
        except RemoteNotFound as error:
            if error.condition != NOT_FOUND:
                raise
            if not is_doubted:
                return Cancelled.NOT_SCHEDULED
            is_ahead = due_ms is not None and due_ms > now_ms() + MARGIN_MS
            return Cancelled.CANCELLED if is_ahead else Cancelled.UNSURE
        except RemoteError as error:
            is_doubted = is_doubted or error.in_doubt
            if not left or not error.in_doubt:
                error.in_doubt = is_doubted
                raise
        else:
            break
    return Cancelled.CANCELLED


async def cancel_old(
    management: RemoteManagement, old: int, was_ms: int, new: int, due_ms: int
) -> str:
    """Cancel a message that is scheduled anew; withdraw the new one if the old was due meanwhile.

    Args:
        was_ms, due_ms: when the old and the new one are due, UTC ms.

    Returns:
        Why the message is not moved; "" if it is.

    Raises:
        RemoteError: it may be scheduled twice.
    """
    try:
        found = await cancel(management, old, was_ms)
    except RemoteError as error:
        if error.in_doubt or error.retryable:
            raise
        why = sentence_of(error).rstrip(".")
    else:
        if found is Cancelled.CANCELLED:
            return ""
        if found is Cancelled.UNSURE:
            return (
                f"the connection ended while it was due: it was enqueued, or {new} alone is there; "
                f"cancel {new} if you find the old one"
            )
        why = "it was due meanwhile"
    if await cancel(management, new, due_ms) is Cancelled.CANCELLED:
        return f"{why}: the new one is withdrawn"
    return f"{why}, and {new}, scheduled anew, is enqueued, too: it is there twice"
