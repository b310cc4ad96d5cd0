"""The engine's verb for migrations that import messages, as a protocol for gateways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bridge.message.envelopes import ImportedMessage
from bridge.model.name import EntityPath


class ImportVerbs(Protocol):
    """The verb by which messages keep the numbers of another namespace."""

    def check(self, path: EntityPath, run: str) -> None:
        """Check that a run may import messages into an entity.

        Args:
            path: a queue, topic or subscription.

        Raises:
            EntityNotFound: there is none of this name.
            EntityConflict: the run does not hold it.
            ServerBusy: a bridge of the namespace cannot import.
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
