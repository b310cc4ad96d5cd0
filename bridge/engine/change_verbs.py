"""The part of the engine's interface that makes, changes and holds entities."""

from __future__ import annotations

from typing import Protocol

from bridge.engine.import_verbs import ImportVerbs
from bridge.engine.transaction_verbs import TransactionVerbs
from bridge.model import entity as model


class ChangeVerbs(Protocol):
    """The verbs that make and delete entities, change rules of subscriptions, and hold entities.

    What is there is named by its path.
    """

    async def create(self, entity: model.Entity) -> model.Entity:
        """Create an entity; return it as it is stored.

        Raises:
            EntityAlreadyExists, EntityNotFound, EntityConflict, ServerBusy: see
                `Administration.create`.
        """

    async def delete(self, path: str) -> None:
        """Delete an entity with its messages.

        Raises:
            EntityNotFound, ServerBusy: see `Administration.delete`.
        """

    async def create_rule(self, subscription: str, rule: model.Rule) -> None:
        """Add a rule.

        Raises:
            InvalidRule, EntityNotFound, EntityAlreadyExists, QuotaExceeded: see `model.errors`.
        """

    async def delete_rule(self, subscription: str, name: str) -> None:
        """Delete a rule.

        Raises:
            EntityNotFound: there is no such subscription or rule.
        """

    async def hold(self, path: str, run: str) -> None:
        """Hold an entity for a migration's run.

        Raises:
            EntityNotFound, EntityConflict, ServerBusy: see `Administration.hold`.
        """

    async def release(self, path: str, run: str) -> None:
        """End a run's hold of an entity.

        Raises:
            EntityNotFound, EntityConflict, ServerBusy: see `Administration.release`.
        """


class NamespaceChanges(Protocol):
    """The parts of a namespace beside its verbs on messages."""

    @property
    def administration(self) -> ChangeVerbs:
        """The verbs that make and change."""

    @property
    def importing(self) -> ImportVerbs:
        """The verb of migrations that import messages."""

    @property
    def transactions(self) -> TransactionVerbs:
        """The verbs of transactions."""
