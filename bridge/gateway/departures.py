"""Departure of clients from a bridge that is about to stop, each when it has nothing locked.

A client whose connection ends while it works on a message is given the message again, at another
bridge, and works on it twice; a session processor of .NET does not even come back. So a client that
has messages keeps its connection, on which it settles, renews and sends, and gets no more; it is
told to go when it has settled all, and discharged its transactions. Who has nothing is told to go
at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from bridge.background.tasks import Tasks

if TYPE_CHECKING:
    from bridge.gateway.client.connections import OpenConnection
    from bridge.gateway.server import Gateway

QUIET_S = 0.25
"""How long a client has nothing locked before it goes: a handler may settle before its end."""


class Departures:
    """The clients of a gateway on their way out.

    Args:
        is_locked: whether a lock of the engine's has not ended, by its token.
    """

    def __init__(self, gateway: Gateway, is_locked: Callable[[UUID], bool]) -> None:
        self._gateway = gateway
        self._is_locked = is_locked
        self._quiet_since_s: dict[OpenConnection, float] = {}
        self._going = Tasks()

    def look(self, now_s: float) -> bool:
        """Let clients go that have nothing locked; return whether any has.

        Called again and again. The first call ends the listening for more clients.

        Args:
            now_s: the time of a monotonic clock.
        """
        self._gateway.close_listeners()
        is_waiting = False
        for connection in list(self._gateway.connections):
            if not connection.is_leaving:
                connection.is_leaving = True
                connection.links.leave()
            transactions = connection.transactions
            is_busy = transactions is not None and transactions.is_busy
            if is_busy or connection.links.have_locked(self._is_locked):
                self._quiet_since_s.pop(connection, None)
                is_waiting = True
                continue
            since_s = self._quiet_since_s.setdefault(connection, now_s)
            if now_s - since_s < QUIET_S:
                is_waiting = True
            elif since_s != _GONE:
                self._quiet_since_s[connection] = _GONE
                self._going.start(self._let_go(connection), "departure")
        return is_waiting or bool(self._going)

    async def _let_go(self, connection: OpenConnection) -> None:
        """Answer what the client has asked for so far, and close its connection."""
        connection.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._gateway.settings.stop_s):
                await connection.work.answered()
        connection.say_goodbye()


_GONE = float("-inf")
