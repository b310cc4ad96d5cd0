"""Whether all bridges follow a hold: each is asked, and reads the definition before it answers.

A bridge that has answered refuses what a held entity takes no more, and, if it leads the entity,
numbers and activates nothing. One that is gone has no queue: its successor reads definitions before
it leads. A bridge that begins meanwhile reads them, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine.peers import Peers, Question
from bridge.model import entity as model
from bridge.model.errors import ServerBusy, ServiceBusError
from bridge.wire.basic import text
from bridge.wire.reply import encode_done
from bridge.wire.sessions import string

HELD: Final = "held"
"""The name of the question."""

FOLLOWED_S: Final = 10.0
"""How long the answers of all bridges are awaited."""

log = logging.getLogger(__name__)


class HoldFollowers:
    """Asks the other bridges whether they follow a hold, and answers them.

    Args:
        others: lists the names of all other running bridges.
        read: reads the definition of an entity anew, and returns it.
    """

    def __init__(
        self,
        peers: Peers,
        others: Callable[[], Awaitable[Collection[bytes]]],
        read: Callable[[str], Awaitable[model.Entity | None]],
    ) -> None:
        self._peers = peers
        self._others = others
        self._read = read
        peers.answer(HELD, self._answer)

    async def await_all(self, path: str, run: str) -> None:
        """Return when all bridges follow the hold of an entity by a run.

        Raises:
            ServerBusy: one does not, or has not said so in time; the entity is held all the same.
        """
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(FOLLOWED_S):
                others = await self._others()
                answers = await asyncio.gather(*(self._follows(each, path, run) for each in others))
        except (TimeoutError, ServiceBusError, BrokerError) as error:
            cause = str(error) or f"no answer within {FOLLOWED_S:.0f} s"
            raise _unfollowed(path, run, cause) from error
        if not all(answers):
            raise _unfollowed(path, run, "one has read another definition")
        took_ms = (time.monotonic() - began_s) * 1_000
        log.info("hold.followed path=%s bridges=%d ms=%.0f", path, len(answers) + 1, took_ms)

    async def _follows(self, bridge: bytes, path: str, run: str) -> bool:
        question = {"do": text(HELD), "path": text(path), "run": text(run)}
        try:
            return bool((await self._peers.ask(bridge, question)).numbers)
        except Unroutable:  # it is gone
            return True

    async def _answer(self, question: Question) -> bytes:
        there = await self._read(string(question.table, "path"))
        is_held = there is not None and there.held == string(question.table, "run")
        return encode_done((1,) if is_held else ())


def _unfollowed(path: str, run: str, cause: str) -> ServerBusy:
    return ServerBusy(
        f"'{path}' is held by the migration '{run}', and not all bridges have said that they "
        f"follow it: {cause}. Ask again."
    )
