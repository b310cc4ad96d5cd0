"""Entities whose messages are received by session alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.remote.namespace import RemoteNamespace


async def requires_sessions(namespace: RemoteNamespace, path: str) -> bool:
    """Return whether an entity requires sessions (Listen): it refuses a receiver of none then.

    Raises:
        RemoteError: it refuses the receiver for another reason, or is not reached.
    """
    from bridge.remote.errors import RemoteRefused

    try:
        receiver = await namespace.receiver(path)
    except RemoteRefused as error:
        if "requires sessions" not in str(error):
            raise
        return True
    await receiver.close()
    return False
