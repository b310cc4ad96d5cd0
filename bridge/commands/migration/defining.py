"""Makes the entities of a migration at the target, as they are at the source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from bridge.commands.migration.meeting import together
from bridge.commands.output import Progress
from bridge.model import entity as model
from bridge.model.entity import Tier
from bridge.model.properties import kind_of
from bridge.operations.migration.comparison import compared, made_mb
from bridge.operations.migration.plan import MigrationSide
from bridge.remote.administration import RemoteAdministration
from bridge.remote.entity import rule_node

TOGETHER: Final = 4
"""Queues and topics that are made side by side."""

_FORWARDING = ("ForwardTo", "ForwardDeadLetteredMessagesTo")


class DefinitionCopy:
    """Copies definitions from a namespace to another one.

    Args:
        source, target: their administration.
        here, there: what they have.
        progress: is told of each entity.
    """

    def __init__(
        self,
        source: RemoteAdministration,
        target: RemoteAdministration,
        here: MigrationSide,
        there: MigrationSide,
        progress: Progress,
    ) -> None:
        self._source = source
        self._target = target
        self._tiers = here.tier, there.tier
        self._there = there.by_path()
        self._progress = progress

    async def define(self, entities: Sequence[model.Entity]) -> None:
        """Make or change the entities; a topic stands before its subscriptions.

        What forwards does so when all are there.

        Raises:
            RemoteError: a namespace refuses, or does not answer.
        """
        units: dict[str, list[model.Entity]] = {}
        for entity in entities:
            units.setdefault(entity.front.lower(), []).append(entity)
        await together([partial(self._define_unit, each) for each in units.values()], TOGETHER)
        for entity in entities:
            if self._is_due(entity) and any(_forwarding_of(entity).values()):
                await self._write(entity, _names(entity), is_new=False, forwards=True)

    async def _define_unit(self, unit: Sequence[model.Entity]) -> None:
        """Make or change a queue, or a topic and then its subscriptions; none forwards yet."""
        for entity in unit:
            if self._is_due(entity):
                is_new = entity.path.lower() not in self._there
                await self._write(entity, _names(entity), is_new=is_new, forwards=False)
            self._progress.advance()

    def _is_due(self, entity: model.Entity) -> bool:
        """Whether the target has it not, or has it otherwise."""
        there = self._there.get(entity.path.lower())
        return there is None or _differs(entity, there, *self._tiers)

    async def _write(
        self, entity: model.Entity, names: tuple[str, ...], *, is_new: bool, forwards: bool
    ) -> None:
        kind = kind_of(entity).value
        found = await self._source.get(kind, *names)
        targets = _forwarding_of(entity)
        given = targets if forwards else dict.fromkeys(targets, "")
        if not isinstance(entity, model.Subscription):
            given["MaxSizeInMegabytes"] = str(made_mb(entity, self._tiers[1]))
        description = found.changed(given)
        if is_new:
            await self._target.create(kind, description, *names)
        else:
            await self._target.update(kind, description, *names)
        if isinstance(entity, model.Subscription) and not forwards:
            await self._write_rules(entity)

    async def _write_rules(self, subscription: model.Subscription) -> None:
        topic, name = subscription.topic, subscription.name
        wanted = {each.name.lower(): each for each in subscription.rules}
        found = {}
        async for each in self._target.rules(topic, name):
            found[each.name.lower()] = each.rule
        for key, rule in found.items():
            if wanted.get(key) != rule:
                await self._target.delete(topic, name, rule.name)
        for key, rule in wanted.items():
            if found.get(key) != rule:
                await self._target.create("Rule", rule_node(rule), topic, name, rule.name)


def _differs(entity: model.Entity, there: model.Entity, source: Tier, target: Tier) -> bool:
    return any(each.level == "change" for each in compared(entity, there, source, target))


def _names(entity: model.Entity) -> tuple[str, ...]:
    if isinstance(entity, model.Subscription):
        return entity.topic, entity.name
    return (entity.name,)


def _forwarding_of(entity: model.Entity) -> dict[str, str]:
    """Return where an entity forwards to, by Azure's names, as the target names it."""
    if isinstance(entity, model.Topic):
        return {}
    targets = entity.forward_to, entity.forward_dead_lettered_messages_to
    return dict(zip(_FORWARDING, targets, strict=True))
