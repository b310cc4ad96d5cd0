"""The engine's verbs for migrations that import, as protocols for gateways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bridge.message.envelopes import ImportedMessage
from bridge.model.name import EntityPath
from bridge.wire.series_numbers import SeriesNumbers


class StateImportVerbs(Protocol):
    """The verbs by which sessions keep their states; no session is locked by them."""

    async def store(self, path: EntityPath, run: str, session_id: str, state: bytes | None) -> None:
        """Store a session's state; `None` clears it. It may be stored already.

        Args:
            path: a queue or subscription that requires sessions.

        Raises:
            EntityConflict: the run does not hold the entity.
            NotAllowed: the entity has no sessions.
            ArgumentOutOfRange, MessageSizeExceeded: the id, or the state, is too large.
            OperationTimeout: whether it is stored is unknown.
            ServerBusy: it is not; or a bridge of the namespace cannot do it.
        """

    async def digests(self, path: EntityPath, run: str) -> list[tuple[str, bytes]]:
        """Return the sessions that have a state, sorted, each with the state's SHA-256.

        Raises:
            EntityConflict, NotAllowed, ServerBusy, OperationTimeout: as `store`.
        """


class ImportVerbs(Protocol):
    """The verbs by which messages and sessions keep what they had in another namespace."""

    @property
    def states(self) -> StateImportVerbs:
        """The states of sessions."""

    def check(self, path: EntityPath, run: str) -> None:
        """Check that a run may import messages into an entity.

        Args:
            path: a queue, topic or subscription.

        Raises:
            EntityNotFound: there is none of this name.
            EntityConflict: the run does not hold it.
            ServerBusy: a bridge of the namespace cannot import.
        """

    async def last_numbers(self, path: EntityPath, run: str) -> list[SeriesNumbers]:
        """Return the last number of each partition of an entity, or of a subscription.

        It is told behind all that was imported before.

        Args:
            path: a queue, topic or subscription.

        Raises:
            EntityNotFound: there is none of this name.
            EntityConflict: the run does not hold it.
            ServerBusy: a bridge of the namespace does not tell it, or there is no leader.
            OperationTimeout: there is no answer.
        """

    async def store(self, path: EntityPath, run: str, batch: Sequence[ImportedMessage]) -> None:
        """Store all messages under their numbers, or none; they may be there already.

        Args:
            path: a queue or topic.
            batch: in the order of their numbers.

        Raises:
            EntityConflict: the run does not hold the entity, or a subscription.
            ArgumentOutOfRange: a number is another message's, or too low.
            QuotaExceeded: an entity would have too many deferred messages.
            OperationTimeout: whether they are stored is unknown. After any other error none is, but
                for what was stored before the hold was ended in the midst of the transfer.
            ServiceBusError: as for a send.
        """
