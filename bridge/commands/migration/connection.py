"""Both namespaces of a migration, for a command that works on them."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bridge.commands.errors import WrongInput
from bridge.commands.migration.options import sides_of
from bridge.commands.output import Output
from bridge.commands.target import NamespaceLogin

if TYPE_CHECKING:
    from bridge.operations.migration.plan import MigrationSide
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.namespace import RemoteNamespace

PATIENCE_S: Final = 300.0
"""How long a namespace may be busy or away: a bridge or RabbitMQ is started again."""


@dataclass(frozen=True, slots=True)
class ConnectedSides:
    """Source and target: their logins, administrations and namespaces."""

    source: NamespaceLogin
    target: NamespaceLogin
    at_source: RemoteAdministration
    at_target: RemoteAdministration
    from_source: RemoteNamespace
    to_target: RemoteNamespace
    _said: set[str] = field(default_factory=lambda: {""})

    @classmethod
    @asynccontextmanager
    async def connected(cls, arguments: argparse.Namespace) -> AsyncIterator[ConnectedSides]:
        """Connect to the namespaces that a command names; raises what `sides_of` raises."""
        from bridge.remote.administration import RemoteAdministration
        from bridge.remote.namespace import RemoteNamespace
        from bridge.remote.patience import Patience

        sides = sides_of(arguments)
        patience = Patience(total_s=PATIENCE_S)
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            at_source, at_target = [
                await enter(RemoteAdministration(each.address, each.credential, patience=patience))
                for each in sides
            ]
            from_source, to_target = [
                await enter(RemoteNamespace(each.address, each.credential, patience=patience))
                for each in sides
            ]
            yield cls(*sides, at_source, at_target, from_source, to_target)

    @property
    def run(self) -> str:
        """The name of the run that copies: the same for the same source, whoever begins it."""
        return run_name(self.source)

    async def check_target(self) -> None:
        """See that the target can be one; raises WrongInput, RemoteError."""
        if unfit := unfit_as_target(self.target.name, await self.to_target.server_id()):
            raise WrongInput(unfit)

    def say_left_out(self, output: Output, paths: Iterable[str], patterns: Sequence[str]) -> None:
        """Say once which of the source's queues that are meant are migrations' own."""
        from bridge.commands.migration.sides import own_queues_said

        if (text := own_queues_said(paths, patterns)) not in self._said:
            self._said.add(text)
            output.say(text)

    async def read_source(
        self, output: Output, patterns: Sequence[str], is_moved: str, *, may_lack: bool = False
    ) -> tuple[MigrationSide, set[str], dict[str, str]]:
        """Return the source, the paths that are meant, and when each was made, in lower case.

        Args:
            is_moved: what the command does to an entity, for the text of a refusal.
            may_lack: none may be meant.

        Raises:
            WrongInput: there is none, or a subscription is meant without its topic.
        """
        from bridge.commands.migration.sides import SideReading, chosen

        with output.progress(None, "reading definitions") as progress:
            reading = SideReading(self.at_source, progress)
            side = await reading.side()
        self.say_left_out(output, reading.kinds, patterns)
        meant = chosen(reading.kinds, patterns)
        if not meant and not may_lack:
            raise WrongInput(f"{self.source.name!r} has no such entity.")
        for path in sorted(meant):
            topic, _, name = path.partition("/subscriptions/")
            if name and topic not in meant:
                raise WrongInput(f"{path} {is_moved} with its topic alone: name {topic!r}.")
        return side, meant, reading.created

    async def read_target(
        self, output: Output, here: MigrationSide, meant: set[str], patterns: Sequence[str] = ()
    ) -> tuple[MigrationSide, dict[str, str]]:
        """Return what the target has of the paths that are meant, and when each was made.

        Args:
            patterns: queues and topics that are read, too, as '*'.
        """
        from bridge.commands.migration.sides import SideReading, chosen

        names = names_at_target(here, meant)

        def is_wanted(name: str) -> bool:
            is_chosen = bool(patterns) and bool(chosen((name,), patterns))
            return is_chosen or name.lower() in names

        with output.progress(None, "reading definitions") as progress:
            reading = SideReading(self.at_target, progress)
            return await reading.side(is_wanted), reading.created


def run_name(source: NamespaceLogin) -> str:
    """Return the name of the run that copies a source: the same whoever begins it."""
    return f"migrate-{_digest(source)}"


def renumbering_name(source: NamespaceLogin) -> str:
    """Return the name of the run that copies a source under new numbers, likewise."""
    return f"{run_name(source)}-renumber"


def back_name(source: NamespaceLogin) -> str:
    """Return the name of the run that goes back to a source, likewise."""
    return f"migrate-back-{_digest(source)}"


def _digest(source: NamespaceLogin) -> str:
    return hashlib.sha256(source.address.namespace.lower().encode()).hexdigest()[:12]


def unfit_as_target(name: str, server_id: str) -> str:
    """Return why a namespace can be no target, with what to do; "" if it is a busbridge.

    Args:
        name: its profile's.
        server_id: see `RemoteNamespace.server_id`.
    """
    from bridge.wire.own_operations import CONTAINER_ID

    if server_id == CONTAINER_ID:
        return ""
    return (
        f"{name!r} is no busbridge: it calls itself {server_id!r}. A migration keeps "
        "numbers, which a busbridge alone can take: start one (`busbridge serve`) and name its "
        "profile by --to. What needs no numbers a relay moves into any namespace (docs/hybrid.md)."
    )


def names_at_target(source: MigrationSide, meant: set[str]) -> set[str]:
    """Return the queues and topics that matter at the target: what is meant, and its targets."""
    names = {path.partition("/subscriptions/")[0] for path in meant}
    for path, entity in source.by_path().items():
        for field_name in ("forward_to", "forward_dead_lettered_messages_to"):
            if path in meant and (name := getattr(entity, field_name, "")):
                names.add(name.lower())
    return names
