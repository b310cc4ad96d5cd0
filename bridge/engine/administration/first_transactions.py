"""The first transaction of an entity: from then on its definition says that it had one.

A message that comes again may have been settled by a transaction, so each deliverer asks for it
(`machine.queue.inquiries`), and an older bridge must not lead the entity, nor receive from it. That
must hold before the first envelope of a commit is published: first the definition is written, then
each running bridge says that it has read it. This bridge remembers it then, so later commits wait
for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from bridge.engine import texts
from bridge.engine.administration.changes import Administration
from bridge.engine.definition_followers import TRANSACTIONS, DefinitionFollowers
from bridge.model import entity as model
from bridge.model.errors import EntityNotFound, ServerBusy
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire import commits

log = logging.getLogger(__name__)


class FirstTransactions:
    """Marks entities as transactional; remembers which ones all bridges know as that.

    Args:
        find: returns the definition of an entity as this bridge has read it last.
        check_known: raises ServerBusy while a bridge of the namespace does not know a feature.
        followers: asks the other bridges.
    """

    def __init__(
        self,
        administration: Administration,
        find: Callable[[str], model.Entity | None],
        check_known: Callable[[str], None],
        followers: DefinitionFollowers,
    ) -> None:
        self._administration = administration
        self._find = find
        self._check_known = check_known
        self._followers = followers
        self._followed: dict[str, str] = {}
        followers.answer(TRANSACTIONS, _is_transactional)

    async def __call__(self, path: str) -> None:
        """Return when an entity may have transactions; at once if this bridge knows that it may.

        To be awaited before the envelope of each commit, with the pinned queue or topic, and with
        each subscription whose messages the commit settles: its topic is marked with it.

        Raises:
            EntityNotFound: there is no entity of this name.
            ServerBusy: a bridge of the namespace is of an older version, or has not said in time
                that it follows, or another change of the entity takes too long.
        """
        front = names.front_path(path)
        for each in (path,) if front.lower() == path.lower() else (front, path):
            there = self._find(each)
            if there is None:
                raise EntityNotFound(texts.not_found(each))
            if self._followed.get(there.path.lower()) != incarnation_of(there):
                await self._begin(each)

    async def _begin(self, path: str) -> None:
        self._check_known(commits.FEATURE)
        administration = self._administration
        async with administration.alone(names.front_path(path)):
            there = await administration.read(path)
            if there is None:
                raise EntityNotFound(texts.not_found(path))
            if not there.transactional:
                await administration.define(replace(there, transactional=True))
                log.info("entity.transactional path=%s", there.path)
        incarnation = incarnation_of(there)
        try:
            await self._followers.await_all(TRANSACTIONS, there.path, incarnation)
        except ServerBusy as error:
            raise ServerBusy(
                f"Not all bridges have said that they know of transactions of '{there.path}': "
                f"{error}. Try again."
            ) from error
        self._followed[there.path.lower()] = incarnation


def _is_transactional(entity: model.Entity, incarnation: str) -> bool:
    return entity.transactional and incarnation_of(entity) == incarnation
