"""Which entities come back from a migration's target, and why others do not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bridge.model import entity as model
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
        is_in_part: whether something was copied, or has messages at the target, and does not come
            back.
    """

    coming: list[model.Queue | model.Topic] = field(default_factory=list)
    returned: list[model.Queue | model.Topic] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stranded: dict[str, int] = field(default_factory=dict)
    is_in_part: bool = False


def choose(
    here: MigrationSide,
    there: MigrationSide,
    meant: Collection[str],
    recorded: Mapping[str, tuple[LastCopied, int]],
    created: Mapping[str, str],
    made_at_source: Mapping[str, str],
) -> ReturnChoice:
    """Return what comes back; a topic does with all its subscriptions, or not at all.

    Args:
        here, there: the source and the target.
        meant: the source's paths that are, in lower case.
        recorded, created, made_at_source: see `not_copied`.
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
        if own not in meant:
            _note_stranded(found, there, [unit, *subscriptions_of(unit)])
            continue
        if _has_returned(own, recorded, created):
            found.returned.append(unit)
            continue
        each: list[model.Entity] = [unit, *subscriptions_of(unit)]
        paths = [one.path.lower() for one in each if one.path.lower() in meant]
        told = no_way_back(paths, recorded)
        told = told or not_copied(paths, recorded, created, made_at_source)
        told = told or list(_disabled([ours[one] for one in paths], "source"))
        told = told or list(_disabled([theirs[one] for one in paths], "target"))
        if told:
            found.refused += told
            found.is_in_part = True
            continue
        found.coming.append(unit)
        _note_stranded(found, there, [one for one in each if one.path.lower() not in meant])
    found.is_in_part |= bool(found.stranded)
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


def _note_stranded(
    found: ReturnChoice, there: MigrationSide, entities: Collection[model.Entity]
) -> None:
    for each in entities:
        if count := there.of(each.path).total:
            found.stranded[each.path] = count


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
