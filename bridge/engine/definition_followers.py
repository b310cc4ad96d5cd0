"""Whether all bridges follow a changed definition: each is asked, and reads it before it answers.

A bridge that has answered a question about a hold refuses what a held entity takes no more, and, if
it leads the entity, numbers and activates nothing. One that has answered a question about a first
transaction asks for what comes again. One that is gone has no queue: its successor reads
definitions before it leads or delivers. A bridge that begins meanwhile reads them, too.
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

HOLD: Final = "hold"
"""The name of the question whether an entity is held by a run."""

TRANSACTIONS: Final = "transactions"
"""The name of the question whether an entity of this incarnation has transactions."""

FOLLOWED_S: Final = 10.0
"""How long the answers of all bridges are awaited."""

Has = Callable[[model.Entity, str], bool]
"""Whether a definition says what was asked for, with the value in the question."""

log = logging.getLogger(__name__)


class DefinitionFollowers:
    """Asks the other bridges whether they follow definitions, and answers them.

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
        self._has: dict[str, Has] = {}

    def answer(self, what: str, has: Has) -> None:
        """Have questions of this name answered."""
        self._has[what] = has
        self._peers.answer(what, self._answer)

    async def await_all(self, what: str, path: str, value: str) -> None:
        """Return when all other bridges follow the definition of an entity.

        Args:
            what: the name of the question.
            value: what the definition must say.

        Raises:
            ServerBusy: one does not, or has not said so in time; the text says why. The definition
                is changed all the same.
        """
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(FOLLOWED_S):
                others = await self._others()
                asked = (self._follows(each, what, path, value) for each in others)
                answers = await asyncio.gather(*asked)
        except (TimeoutError, ServiceBusError, BrokerError) as error:
            raise ServerBusy(str(error) or f"no answer within {FOLLOWED_S:.0f} s") from error
        if not all(answers):
            raise ServerBusy("one has read another definition")
        took_ms = (time.monotonic() - began_s) * 1_000
        log.info("%s.followed path=%s bridges=%d ms=%.0f", what, path, len(answers) + 1, took_ms)

    async def _follows(self, bridge: bytes, what: str, path: str, value: str) -> bool:
        question = {"do": text(what), "path": text(path), "value": text(value)}
        try:
            return bool((await self._peers.ask(bridge, question)).numbers)
        except Unroutable:  # it is gone
            return True

    async def _answer(self, question: Question) -> bytes:
        there = await self._read(string(question.table, "path"))
        value = string(question.table, "value")
        follows = there is not None and self._has[question.what](there, value)
        return encode_done((1,) if follows else ())


class HoldFollowers:
    """Whether all bridges follow the holds of migrations."""

    def __init__(self, followers: DefinitionFollowers) -> None:
        self._followers = followers
        followers.answer(HOLD, lambda entity, run: entity.held == run)

    async def await_all(self, path: str, run: str) -> None:
        """Return when all bridges follow the hold of an entity by a run.

        Raises:
            ServerBusy: one does not, or has not said so in time; the entity is held all the same.
        """
        try:
            await self._followers.await_all(HOLD, path, run)
        except ServerBusy as error:
            raise ServerBusy(
                f"'{path}' is held by the migration '{run}', and not all bridges have said that "
                f"they follow it: {error}. Ask again."
            ) from error
