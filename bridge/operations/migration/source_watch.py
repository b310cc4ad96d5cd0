"""Whether a source is still: what changes between two looks at its counts, and what forwards on."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bridge.operations.count_text import counted
from bridge.operations.migration import order
from bridge.operations.migration.plan import MigrationSide
from bridge.operations.migration.state_counts import COPIED_STATES, StateCounts


def changes(before: MigrationSide, after: MigrationSide, chosen: Collection[str]) -> list[str]:
    """Return a sentence for each entity whose messages have come or gone between two looks.

    What was received and not settled shows in no count: what reads all messages once more finds it.

    Args:
        chosen: the paths that are looked at, in lower case.
    """
    paths = {path: each.path for path, each in {**before.by_path(), **after.by_path()}.items()}
    found = []
    for path in sorted(chosen):
        shown = ", ".join(_differing(before.of(path), after.of(path)))
        if shown:
            found.append(f"{paths.get(path, path)} still changes: {shown}.")
    return found


def _differing(before: StateCounts, after: StateCounts) -> Iterator[str]:
    for state in COPIED_STATES:
        old, new = before.counts.get(state, 0), after.counts.get(state, 0)
        if old != new:
            yield f"{counted(old, state.replace('_', '-') + ' message')} became {new:,}"
    if before.transfer != after.transfer:
        yield f"{before.transfer:,} on their way became {after.transfer:,}"


def risen(before: MigrationSide, after: MigrationSide, chosen: Collection[str]) -> list[str]:
    """Return a sentence for each entity that has more messages than before, whatever their states.

    Args:
        chosen: the paths that are looked at, in lower case.
    """
    paths = {path: each.path for path, each in {**before.by_path(), **after.by_path()}.items()}
    found = []
    for path in sorted(chosen):
        old, new = (each.of(path).total + each.of(path).transfer for each in (before, after))
        if new > old:
            found.append(f"{paths.get(path, path)} had {counted(old, 'message')}, and has {new:,}.")
    return found


def others(before: Collection[str], after: Collection[str]) -> list[str]:
    """Return a sentence for each entity that has come to the source, or gone.

    Args:
        before, after: the paths that are meant, at each of two looks, in lower case.
    """
    new, old = set(after) - set(before), set(before) - set(after)
    return [f"{path} is new." for path in sorted(new)] + [
        f"{path} is gone." for path in sorted(old)
    ]


def undrained(source: MigrationSide, chosen: Collection[str]) -> list[str]:
    """Return a sentence for each entity that has not forwarded all yet, the first in a chain first.

    Args:
        source: the namespace, with its counts.
        chosen: the paths that are looked at, in lower case.
    """
    found = []
    for each in order.forwarding(source.namespace):
        if each.path.lower() not in chosen:
            continue
        told = source.of(each.path)
        waiting = told.counts.get("active", 0) + told.transfer
        dead = told.counts.get("dead_letter", 0)
        if each.messages_to and waiting:
            what = counted(waiting, "message")
            found.append(f"{each.path} has {what} to forward to {each.messages_to}.")
        if each.dead_letters_to and dead:
            what = counted(dead, "dead letter")
            found.append(f"{each.path} has {what} to forward to {each.dead_letters_to}.")
    return found
