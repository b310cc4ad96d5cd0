"""What a migration finds at an entity of its target: messages of its own, or a hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bridge.model import entity as model
from bridge.operations.count_text import counted
from bridge.operations.migration.command_words import command_words
from bridge.operations.migration.findings import FindingLevel, MigrationFinding
from bridge.operations.migration.state_counts import StateCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHold:
    """That somebody holds an entity of the target.

    Attributes:
        by: a run of this source, one with --renumber, the way back to it, or another migration.
        command: what goes on with it; for another migration what the target says of it.
        is_verified: the target has the mark that the run has verified all.
        target: the target's profile.
    """

    by: Literal["run", "renumber", "back", "other"]
    command: str
    is_verified: bool = False
    target: str = ""


def target_findings(
    entity: model.Entity, own: StateCounts, hold: TargetHold | None, *, renumbers: bool
) -> Iterator[MigrationFinding]:
    """Yield what messages of the target's own mean, or a hold.

    Args:
        own: the messages of the target's entity.
        renumbers: messages get new numbers, beside the target's own.
    """
    if hold is not None:
        is_own_run = hold.by == ("renumber" if renumbers else "run")
        yield _found("note" if is_own_run else "refusal", entity, "hold", _held(entity, hold))
    elif own.total and renumbers:
        stay = f"{counted(own.total, 'message')} {'stays' if own.total == 1 else 'stay'}"
        text = f"the target's {stay}; those that come get higher numbers."
        yield _found("note", entity, "messages", text)
    elif own.total:
        text = (
            f"the target's has {counted(own.total, 'message')}. Those of a run that has ended "
            "stay: leave the entity out. If no run has moved it, they are its own: receive or "
            "purge them first, or give --renumber, by which those that come get new numbers."
        )
        yield _found("refusal", entity, "messages", text)


def _held(entity: model.Entity, hold: TargetHold) -> str:
    if hold.by == "other":
        return f"another migration holds the target's: {hold.command}"
    if hold.by == "back":
        return f"`{hold.command}` holds the target's: it is at work, or was killed. Give it again."
    text = (
        f"`{hold.command}` holds the target's: it is at work, or was killed. To go on, give that "
        "command again, with the entities that it named."
    )
    if hold.is_verified:
        return f"{text} It has verified all: do not give up, or what was scheduled may be lost."
    if hold.by == "renumber":
        return f"{text} To give up, give it with --give-up."
    return (
        f"{text} To give up, delete the target's (`busbridge delete {command_words(entity)} -n "
        f"{hold.target}`): the source has everything. Do not purge it."
    )


def _found(level: FindingLevel, entity: model.Entity, subject: str, text: str) -> MigrationFinding:
    return MigrationFinding(level=level, entity=entity.path, subject=subject, text=text)
