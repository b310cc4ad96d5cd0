"""Imports: messages that a migration stores under the numbers that they had elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from bridge.engine import texts
from bridge.engine.import_verbs import StateImportVerbs
from bridge.engine.sending.requests import Sending
from bridge.machine.inbox.imports import NO_SUBSCRIPTION
from bridge.message.envelopes import ImportedMessage
from bridge.model import entity as model
from bridge.model.availability import check_held
from bridge.model.errors import EntityNotFound, NotAllowed
from bridge.model.name import EntityPath, parse_path, short_id
from bridge.topology.definitions import incarnation_of
from bridge.wire.gaps import OWN
from bridge.wire.link_properties import IMPORT
from bridge.wire.own_operations import LAST_NUMBERS
from bridge.wire.series_numbers import SeriesNumbers


class KnownEntities(Protocol):
    """The definitions of a namespace."""

    def entity(self, path: EntityPath) -> model.Entity:
        """Return an entity's; raises EntityNotFound."""

    def send_entity(self, path: EntityPath) -> model.SendEntity:
        """Return a queue's or topic's; raises EntityNotFound, NotAllowed."""


class Importing:
    """Carries out `ImportVerbs`.

    Args:
        check_known: raises ServerBusy while a bridge of the namespace does not know a feature.

    Attributes:
        states: the states of sessions.
    """

    def __init__(
        self,
        directory: KnownEntities,
        sending: Sending,
        check_known: Callable[[str], None],
        states: StateImportVerbs,
    ) -> None:
        self.states = states
        self._directory = directory
        self._sending = sending
        self._check_known = check_known

    def check(self, path: EntityPath, run: str) -> None:
        """Check that a run may import messages into an entity; see `ImportVerbs.check`."""
        self._check_known(IMPORT)
        check_held(self._directory.entity(path), run)

    async def last_numbers(self, path: EntityPath, run: str) -> list[SeriesNumbers]:
        """Return how far an entity's numbers are; see `ImportVerbs.last_numbers`."""
        self._check_known(LAST_NUMBERS)
        entity = self._directory.entity(path)
        check_held(entity, run)
        short, front = OWN, path
        if isinstance(entity, model.Subscription):
            short, front = short_id(incarnation_of(entity)), parse_path(entity.topic)
        found = await self._sending.last_numbers(self._directory.send_entity(front), run)
        numbers = [each for each in found if each.short == short]
        return numbers or [SeriesNumbers(short, 0, 0, is_imported=False)]

    async def store(self, path: EntityPath, run: str, batch: Sequence[ImportedMessage]) -> None:
        """Store all messages or none; see `ImportVerbs.store`."""
        self._check_known(IMPORT)
        entity = self._directory.send_entity(path)
        check_held(entity, run)
        subscriptions = entity.subscriptions if isinstance(entity, model.Topic) else ()
        by_short = {short_id(incarnation_of(each)): each for each in subscriptions}
        for outgoing in batch:
            if outgoing.imported.short == OWN:
                continue
            found = by_short.get(outgoing.imported.short)
            if found is None:
                raise EntityNotFound(NO_SUBSCRIPTION.format(path=entity.path))
            check_held(found, run)
            if (
                found.requires_session
                and outgoing.session_id is None
                and not outgoing.imported.is_dead
            ):
                raise NotAllowed(texts.SESSION_ID_MISSING)
        await self._sending.import_messages(entity, run, batch)
