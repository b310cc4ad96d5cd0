"""Which entities come back from a migration's target, and why others do not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bridge.model import entity as model
from bridge.model.properties import kind_of
from bridge.operations.migration.comparison import staying
from bridge.operations.migration.findings import MigrationFinding
from bridge.operations.migration.last_copied import LastCopied, no_way_back, not_copied
from bridge.operations.migration.plan import MigrationSide
from bridge.operations.migration.run_mark import made_ms


@dataclass(slots=True)
class ReturnChoice:
    """What a way back has to do with the entities of both sides.

    Attributes:
        coming: the target's queues and topics that come back.
        returned: those that have come back before.
        refused: why others stay as they are, in sentences.
        stranded: what the target alone has: how many messages, by path.
        made_since: what no run has copied, as it was made when one had ended, and both sides have
            now: how many messages the target has that would be returned, by path.
        kept: what else does not come back, or did not with its topic: how many messages the target
            has, by path.
        definitions: what definitions of entities that come back have otherwise at the target.
        is_in_part: whether something was copied, or has messages or rules at the target, and does
            not come back.
    """

    coming: list[model.Queue | model.Topic] = field(default_factory=list)
    returned: list[model.Queue | model.Topic] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stranded: dict[str, int] = field(default_factory=dict)
    made_since: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    definitions: list[MigrationFinding] = field(default_factory=list)
    is_in_part: bool = False


def choose(
    here: MigrationSide,
    there: MigrationSide,
    meant: Collection[str],
    recorded: Mapping[str, tuple[LastCopied, int]],
    created: Mapping[str, str],
    made_at_source: Mapping[str, str],
    *,
    returns: bool = False,
) -> ReturnChoice:
    """Return what comes back; a topic does with all its subscriptions, or not at all.

    What was made when a run had ended comes back if it is to be returned and both sides have it: a
    subscription with its topic, a queue or topic by itself. Nothing is settled at the source then.

    Args:
        here, there: the source, all of it, and the target.
        meant: the source's paths that are, in lower case.
        recorded, created, made_at_source: see `not_copied`.
        returns: what the target has taken as new is brought to the source.
    """
    found = ReturnChoice()
    ours, theirs = here.by_path(), there.by_path()
    for path in sorted(meant):
        if path not in theirs:
            found.refused.append(f"{ours[path].path}: it is not at the target.")
            found.is_in_part |= path in recorded and not recorded[path][0].is_returned
    units: list[model.Queue | model.Topic] = [*there.namespace.queues, *there.namespace.topics]
    for unit in units:
        own = unit.path.lower()
        each: list[model.Entity] = [unit, *subscriptions_of(unit)]
        if own not in meant:
            if own not in ours:  # else it is not chosen
                _note(found.stranded, there, each)
            continue
        paths = [one.path.lower() for one in each if one.path.lower() in meant]
        alone = [one for one in each if one.path.lower() not in ours]
        if _has_returned(own, recorded, created):
            found.returned.append(unit)
            left = [one for one in each if not _has_returned(one.path.lower(), recorded, created)]
            _note(found.kept, there, left)
            found.is_in_part |= any(one.path in found.kept for one in left)
            continue
        is_since = _is_made_since(paths, recorded, created, made_at_source)
        copied = [one for one in paths if one in recorded or own not in recorded]
        told: list[str] = []
        if not (is_since and returns):
            told = no_way_back(paths, recorded)
            told = told or not_copied(copied, recorded, created, made_at_source)
        told = told or list(_misfits(paths, ours, theirs))
        told = told or list(_disabled([ours[one] for one in paths], "source"))
        told = told or list(_disabled([theirs[one] for one in paths], "target"))
        if told:
            found.refused += told
            found.is_in_part = True
            stays = found.made_since if is_since and not returns else found.kept
            _note(stays, there, [one for one in each if one not in alone])
        else:
            found.coming.append(unit)
            for one in paths:
                found.definitions += staying(ours[one], theirs[one], here.tier, there.tier)
        _note(found.stranded, there, alone)
    found.is_in_part |= bool(found.stranded)
    found.is_in_part |= any(each.level == "loss" for each in found.definitions)
    return found


def subscriptions_of(unit: model.Queue | model.Topic) -> tuple[model.Subscription, ...]:
    """Return the subscriptions of a topic; a queue has none."""
    return unit.subscriptions if isinstance(unit, model.Topic) else ()


def _has_returned(
    path: str, recorded: Mapping[str, tuple[LastCopied, int]], created: Mapping[str, str]
) -> bool:
    """Whether the target's entity, as it is now, has come back."""
    if path not in recorded:
        return False
    copied, said_ms = recorded[path]
    return copied.is_returned and (made_ms(created.get(path)) or 0) <= said_ms


def _is_made_since(
    paths: Collection[str],
    recorded: Mapping[str, tuple[LastCopied, int]],
    created: Mapping[str, str],
    made_at_source: Mapping[str, str],
) -> bool:
    """Whether no run has copied a queue or topic, as a side got it when one had ended.

    One that both sides had before has messages of its own at each.
    """
    if not recorded or any(path in recorded for path in paths):
        return False
    since_ms = min(said_ms for _, said_ms in recorded.values())
    return all(
        max(made_ms(made.get(path)) or 0 for made in (created, made_at_source)) > since_ms
        for path in paths
    )


def _note(
    counted: dict[str, int], there: MigrationSide, entities: Collection[model.Entity]
) -> None:
    """Note how many messages each entity has at the target, if it has some."""
    for each in entities:
        if count := there.of(each.path).total:
            counted[each.path] = count


def _misfits(
    paths: Iterable[str], ours: Mapping[str, model.Entity], theirs: Mapping[str, model.Entity]
) -> Iterator[str]:
    """Yield a sentence for each entity that is of another kind at the other side."""
    for path in paths:
        here, there = ours[path], theirs[path]
        if kind_of(here) is not kind_of(there):
            kinds = [kind_of(each).value.lower() for each in (here, there)]
            yield f"{here.path}: it is a {kinds[0]} at the source, and a {kinds[1]} at the target."
        elif getattr(here, "requires_session", False) != getattr(there, "requires_session", False):
            yield (
                f"{here.path}: RequiresSession differs: make the source's anew as the target's is, "
                "if it has no messages."
            )


def _disabled(entities: Iterable[model.Entity], side: str) -> Iterator[str]:
    """Yield a sentence for each entity whose status does not allow what a way back does there.

    It receives at both sides, and sends to the source.
    """
    for each in entities:
        status = each.status
        if not status.allows_receives or (side == "source" and not status.allows_sends):
            yield (
                f"{each.path}: it is {status.value} at the {side}: enable it there "
                "(`busbridge update ... --status Active`)."
            )
