"""Ends the holds of a run that gave new numbers, and says how its copies are removed."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.commands.message_path import DEAD_LETTER
from bridge.commands.migration_holding import held_paths, holds
from bridge.commands.output import Output
from bridge.operations.migration.copy_effects import CopyPlace
from bridge.operations.migration.renumbered_message import RENUMBERED
from bridge.remote.errors import RemoteNotFound
from bridge.remote.namespace import RemoteNamespace


async def give_up(
    target: RemoteNamespace,
    run: str,
    units: Sequence[Sequence[CopyPlace]],
    name: str,
    output: Output,
) -> None:
    """End a run's holds, and write a row for each place with copies: how they are removed.

    Args:
        units: the places of each queue or topic.
        name: the target's profile.

    Raises:
        CopyStopped: another run holds one of them.
        RemoteError: the target refuses, or does not answer.
    """
    rows: list[dict[str, object]] = []
    held = 0
    for places in units:
        for path in held_paths(places):
            try:
                held += await holds(target, path, run)
                await target.management_of(path).release(run)
            except RemoteNotFound:
                continue
        for place in places:
            is_topic = any(each.is_ordered_by_topic for each in places)
            rows += [_row(place, state, run, name) for state in _states(place, is_topic=is_topic)]
    output.table(rows, ("entity", "state", "command"))
    output.say(
        f"{held:,} holds have ended. Give these commands before anything receives there, and see "
        "that they find what they should (--dry-run)."
    )


def _states(place: CopyPlace, *, is_topic: bool) -> tuple[str, ...]:
    """Return the states that copies of a place may have, as `busbridge purge` names them."""
    if place.is_dead:
        return ("dead",)
    if is_topic:
        return ("active", "deferred") if place.is_ordered_by_topic else ("scheduled",)
    return ("active", "scheduled", "deferred")


def _row(place: CopyPlace, state: str, run: str, name: str) -> dict[str, object]:
    path = place.path.removesuffix(DEAD_LETTER)
    where = f"[{RENUMBERED}] LIKE '%{run}%'"
    return {
        "entity": path,
        "state": state,
        "command": f'busbridge purge {path} -n {name} --state {state} --where "{where}"',
    }
