"""Who holds the entities of a migration's target: asked by attaching, which changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from bridge.commands.migration.connection import back_name, renumbering_name, run_name
from bridge.commands.migration.holding import holds
from bridge.operations.migration.copy_effects import CopyStopped
from bridge.operations.migration.held_target import TargetHold

if TYPE_CHECKING:
    from bridge.commands.target import NamespaceLogin
    from bridge.remote.namespace import RemoteNamespace


async def target_holds(
    namespace: RemoteNamespace,
    source: NamespaceLogin,
    target: NamespaceLogin,
    paths: Iterable[str],
    queues: Collection[str],
) -> dict[str, TargetHold]:
    """Return who holds entities of the target, by the path in lower case; none: nobody.

    Args:
        namespace: the target's.
        paths: the entities.
        queues: all that the target has, with the marks of runs.

    Raises:
        RemoteError: the target refuses, or does not answer.
    """
    sides = f"--from {source.name} --to {target.name}"
    mark = f"busbridge-{run_name(source)}-"
    is_verified = any(each.lower().startswith(mark) for each in queues)
    known = {
        run_name(source): TargetHold(
            by="run",
            command=f"busbridge migrate run {sides}",
            is_verified=is_verified,
            target=target.name,
        ),
        renumbering_name(source): TargetHold(
            by="renumber",
            command=f"busbridge migrate run {sides} --renumber",
            is_verified=is_verified,
        ),
        back_name(source): TargetHold(by="back", command=f"busbridge migrate back {sides}"),
    }
    found = {}
    for path in paths:
        if (held := await _held(namespace, path, known)) is not None:
            found[path.lower()] = held
    return found


async def _held(
    namespace: RemoteNamespace, path: str, known: dict[str, TargetHold]
) -> TargetHold | None:
    other = ""
    for run, hold in known.items():
        try:
            if await holds(namespace, path, run):
                return hold
        except CopyStopped as error:
            other = str(error)
        else:
            return None
    return TargetHold(by="other", command=other)
