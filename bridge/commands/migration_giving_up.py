"""Ends the holds of a run that gave new numbers, and says how its copies are removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from bridge.commands.message_path import DEAD_LETTER
from bridge.commands.migration_holding import held_paths, holds
from bridge.commands.output import Output
from bridge.operations.count_text import counted
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
    """Write a row for each place with copies, how they are removed, and end a run's holds.

    What the run does not hold has no row: its copies, if it has some, may be the only ones.

    Args:
        units: the places of each queue or topic.
        name: the target's profile.

    Raises:
        CopyStopped: another run holds one of them; nothing is changed.
        RemoteError: the target refuses, or does not answer.
    """
    held = [each for each in units if await _is_held(target, each, run)]
    rows: list[dict[str, object]] = []
    for places in held:
        for place in places:
            is_topic = any(each.is_ordered_by_topic for each in places)
            rows += [_row(place, state, run, name) for state in _states(place, is_topic=is_topic)]
    output.table(rows, ("entity", "state", "command"))
    for places in held:
        for path in held_paths(places):
            with suppress(RemoteNotFound):
                await target.management_of(path).release(run)
    if not held:
        output.say("The run holds none of these: nothing was changed.")
        return
    units_text = counted(len(held), "queue or topic", "queues and topics")
    output.say(
        f"The holds of {units_text} have ended. Give these commands before anything receives "
        "there, and see that they find what they should (--dry-run)."
    )


async def _is_held(target: RemoteNamespace, places: Sequence[CopyPlace], run: str) -> bool:
    """Whether a run holds a queue or topic, or a subscription of it.

    Raises:
        CopyStopped, RemoteError: see `give_up`.
    """
    found = False
    for path in held_paths(places):
        with suppress(RemoteNotFound):
            found |= await holds(target, path, run)
    return found


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
