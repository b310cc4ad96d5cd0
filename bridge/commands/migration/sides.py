"""The two namespaces of a migration, read by their administration: definitions and counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase

from bridge.commands.output import Progress
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.operations.migration.plan import MigrationSide
from bridge.operations.migration.run_mark import is_own
from bridge.operations.migration.state_counts import StateCounts, told
from bridge.remote.administration import RemoteAdministration
from bridge.remote.entity import RemoteEntity
from bridge.remote.errors import RemoteNotFound
from bridge.wire.atom.descriptions import read_entity


class SideReading:
    """Reads a namespace, entity by entity.

    Args:
        administration: the namespace's.
        progress: is told of each entity.

    Attributes:
        requests: how many entities and rules were asked for.
        kinds: the kind of each entity that was found, by its path as it is written there.
        created: when each was made, as the namespace writes it, by the path in lower case; "" where
            it does not tell.
    """

    def __init__(self, administration: RemoteAdministration, progress: Progress) -> None:
        self._administration = administration
        self._progress = progress
        self._counted: dict[str, StateCounts] = {}
        self._refused: dict[str, str] = {}
        self.requests = 0
        self.kinds: dict[str, str] = {}
        self.created: dict[str, str] = {}

    async def side(self, is_wanted: Callable[[str], bool] = lambda path: True) -> MigrationSide:
        """Return the namespace with its queues, topics, subscriptions and rules.

        Args:
            is_wanted: whether a queue or topic of this name is.

        Raises:
            RemoteError: the namespace refuses, or does not answer.
        """
        info = await self._administration.namespace()
        queues = []
        async for remote in self._noted(self._administration.queues(), is_wanted):
            found = self._model(remote, {"name": remote.name})
            queues += [found] if isinstance(found, model.Queue) else []
        topics = []
        async for remote in self._noted(self._administration.topics(), is_wanted):
            found = self._model(remote, {"name": remote.name})
            if isinstance(found, model.Topic):
                topics.append(replace(found, subscriptions=await self._subscriptions(found.name)))
        namespace = model.Namespace(
            name=info.name or "namespace", queues=tuple(queues), topics=tuple(topics)
        )
        tier = model.Tier.STANDARD
        with suppress(ValueError):  # the emulator names none
            tier = model.Tier(info.tier)
        return MigrationSide(
            tier=tier, namespace=namespace, counted=self._counted, refused=self._refused
        )

    async def _subscriptions(self, topic: str) -> tuple[model.Subscription, ...]:
        subscriptions = []
        listed = self._administration.subscriptions(topic)
        async for remote in self._noted(listed, lambda name: True):
            found = self._model(remote, {"topic": topic, "name": remote.name})
            if isinstance(found, model.Subscription):
                rules = await self._rules(found)
                subscriptions.append(replace(found, rules=rules))
        return tuple(subscriptions)

    async def _rules(self, subscription: model.Subscription) -> tuple[model.Rule, ...]:
        rules = []
        with suppress(RemoteNotFound):  # it was deleted meanwhile
            async for each in self._administration.rules(subscription.topic, subscription.name):
                self.requests += 1
                try:
                    rules.append(each.rule)
                except ServiceBusError as error:
                    self._refused[subscription.path] = f"its rule {each.name!r}: {error}"
        return tuple(rules)

    async def _noted(
        self, listed: AsyncIterator[RemoteEntity], is_wanted: Callable[[str], bool]
    ) -> AsyncIterator[RemoteEntity]:
        async for each in listed:
            self.requests += 1
            self._progress.advance()
            if is_wanted(each.name):
                self.kinds[each.path] = each.kind
                self.created[each.path.lower()] = each.time("CreatedAt") or ""
                yield each

    def _model(self, remote: RemoteEntity, identity: dict[str, str]) -> model.Entity | None:
        """Return the model's entity of a description, and note its messages."""
        description = remote.description
        count, size = (description.text_of(name) for name in ("MessageCount", "SizeInBytes"))
        self._counted[remote.path.lower()] = told(
            remote.counts,
            int(count) if count.isdecimal() else 0,
            int(size) if size.isdecimal() else None,
        )
        try:
            return read_entity(description, identity)
        except ServiceBusError as error:
            self._refused[remote.path] = str(error)
            return None


def chosen(paths: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """Return the paths that are meant, in lower case; with a topic's its subscriptions'.

    None is a queue that a migration has made for itself.

    Args:
        patterns: as 'orders*'; none: all.
    """
    lower = [path.lower() for path in paths if not is_own(path)]
    found = {path for path in lower if _is_meant(path, patterns)}
    return found | {path for path in lower if path.partition("/subscriptions/")[0] in found}


def own_queues_said(paths: Iterable[str], patterns: Sequence[str]) -> str:
    """Return a sentence about queues of migrations' own that are meant; "" if none is.

    Args:
        patterns: as for `chosen`.
    """
    own = sorted(path for path in paths if is_own(path) and _is_meant(path, patterns))
    if not own:
        return ""
    return (
        f"{', '.join(own)}: left out. Migrations into this namespace have made "
        f"{'it' if len(own) == 1 else 'them'} for themselves."
    )


def _is_meant(path: str, patterns: Sequence[str]) -> bool:
    wanted = [each.lower() for each in patterns] or ["*"]
    return any(fnmatchcase(path.lower(), each) for each in wanted)
