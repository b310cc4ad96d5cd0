"""Ends the holds of a run that gave new numbers, and says how its copies are removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

from bridge.commands.message_path import DEAD_LETTER
from bridge.commands.migration.holding import NOT_HELD, held_paths, holds
from bridge.commands.migration.state_copying import source_states, target_states
from bridge.commands.output import Output
from bridge.model.session_id import fold
from bridge.operations.count_text import counted
from bridge.operations.migration.copy_effects import CopyPlace, CopyRefused
from bridge.operations.migration.renumbered_message import RENUMBERED
from bridge.remote.errors import RemoteNotFound, RemoteRefused
from bridge.remote.namespace import RemoteNamespace

STATES_TOGETHER: Final = 10
"""Sessions of the source that are accepted at once."""

STATES_NAMED: Final = 10
"""Sessions that are named; all are counted."""


async def give_up(
    source: RemoteNamespace,
    target: RemoteNamespace,
    run: str,
    units: Sequence[Sequence[CopyPlace]],
    name: str,
    output: Output,
) -> None:
    """Write a row for each place with copies, how they are removed, and end a run's holds.

    States of sessions stay: those that are the same at both sides are named, as nobody can tell
    whether the run has copied them. For that each such session is locked at the source a moment.

    What the run does not hold has no row: its copies, if it has some, may be the only ones.

    Args:
        source, target: the namespaces.
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
    states = [
        await _states_row(source, target, place.path, run, name)
        for places in held
        for place in places
        if place.has_sessions
    ]
    output.table(rows, ("entity", "state", "command"))
    for row in filter(None, states):
        output.say(f"{row['entity']}: {row['text']}.")
        if not output.is_table:
            output.record(row)
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


async def _states_row(
    source: RemoteNamespace, target: RemoteNamespace, path: str, run: str, name: str
) -> dict[str, object] | None:
    """Return what is said of the states of an entity's sessions; `None`: the target has none."""
    try:
        found = (await target_states(target, path, run)).digests
    except RemoteNotFound:
        return None
    except RemoteRefused as error:
        if error.condition != NOT_HELD:
            raise
        return None  # the run has not held this one: it has brought nothing there
    if not found:
        return None
    same: list[str] = []
    untold: list[str] = []
    ids = list(found)
    for at in range(0, len(ids), STATES_TOGETHER):
        some = ids[at : at + STATES_TOGETHER]
        states = await source_states(source, path, some)
        if isinstance(states, CopyRefused):
            untold += some
            continue
        held = {fold(each): sha256(state).digest() for each, state in states.states}
        same += [each for each in some if held.get(fold(each)) == found[each]]
    named = ", ".join(map(repr, same[:STATES_NAMED])) + (", ..." * (len(same) > STATES_NAMED))
    text = f"states of sessions stay at the target: {len(found):,}"
    if same:
        text += (
            f"; of these {len(same):,} are the same at the source ({named}), copies if they were "
            "not there before the run: remove copies by `busbridge session state clear "
            f"{path} --session ID -n {name}`"
        )
    if untold:
        text += f"; {len(untold):,} could not be compared, as somebody holds sessions at the source"
    return {
        "part": "session_states",
        "entity": path,
        "states": len(found),
        "same_at_source": same,
        "not_compared": len(untold),
        "text": text,
    }


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
