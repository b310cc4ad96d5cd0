"""Definitions of a source beside those of its target: what differs, and what is not taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.model import entity as model
from bridge.model.capacity import capacity_mb
from bridge.model.duration import format_duration, is_forever
from bridge.model.properties import CREATE_ONLY, PROPERTIES, kind_of
from bridge.model.tiers import (
    CAPACITIES_MB,
    PREMIUM_CAPACITIES_MB,
    TIER_MESSAGE_SIZE_KB,
    TIER_TIME_TO_LIVE_MAX_MS,
    message_size_max_bytes,
)
from bridge.operations.migration.findings import MigrationFinding

MEBIBYTE: Final = 1_048_576

_OF_NO_EFFECT: Final = frozenset({"EnableBatchedOperations", "SupportOrdering"})
"""Properties that change nothing that an application sees."""

_NAMES: Final = frozenset({"forward_to", "forward_dead_lettered_messages_to"})
"""Fields with names of entities, in any case."""


def capacity_bytes(entity: model.Queue | model.Topic) -> int:
    """Return the size that an entity may have, with all of its partitions."""
    return capacity_mb(entity) * MEBIBYTE


def at_target(
    entity: model.Queue | model.Topic, there: model.Entity | None, tier: model.Tier
) -> tuple[int, int]:
    """Return the bytes that an entity, and one message of it, may have at the target.

    Args:
        there: the entity as it is there; `None` for one that is made.
        tier: the target's.
    """
    if isinstance(there, model.Queue | model.Topic):
        return capacity_bytes(there), message_size_max_bytes(there, tier)
    largest_mb = _capacities_mb(tier)[-1] * (16 if entity.enable_partitioning else 1)
    size_kb = TIER_MESSAGE_SIZE_KB[tier]
    if tier is model.Tier.PREMIUM and entity.max_message_size_kb is not None:
        size_kb = max(size_kb, entity.max_message_size_kb)
    return min(capacity_mb(entity), largest_mb) * MEBIBYTE, size_kb * 1024


def made_mb(entity: model.Queue | model.Topic, tier: model.Tier) -> int:
    """Return the size with which an entity is made at the target: that of a partition, if it has.

    Args:
        tier: the target's.
    """
    sizes_mb, of_one_mb = _capacities_mb(tier), _of_one_partition_mb(entity)
    return max((each for each in sizes_mb if each <= of_one_mb), default=sizes_mb[0])


def compared(
    entity: model.Entity, there: model.Entity | None, source: model.Tier, target: model.Tier
) -> Iterator[MigrationFinding]:
    """Yield what the target's definition of an entity has, or will have, otherwise.

    Args:
        there: the entity of its path at the target, with its rules; `None`: there is none.
        source, target: the tiers.
    """
    if there is None:
        yield from _made(entity, source, target)
    elif kind_of(there) is not kind_of(entity):
        yield MigrationFinding(
            level="refusal",
            entity=entity.path,
            subject="kind",
            text=f"it is a {_kind(entity)}, and the target has a {_kind(there)} of its name: "
            "delete that, or leave this entity out.",
        )
    else:
        yield from _differing(entity, there, source, target)


def _kind(entity: model.Entity) -> str:
    return kind_of(entity).value.lower()


def _made(
    entity: model.Entity, source: model.Tier, target: model.Tier
) -> Iterator[MigrationFinding]:
    """Yield what an entity that is made anew does not keep at a tier."""
    longest_ms = TIER_TIME_TO_LIVE_MAX_MS[target]
    if entity.default_message_time_to_live_ms > longest_ms:
        yield _loss(
            entity,
            "DefaultMessageTimeToLive",
            f"{_duration(entity.default_message_time_to_live_ms)} becomes "
            f"{_duration(longest_ms)}, the longest of the {target.value} tier.",
        )
    if isinstance(entity, model.Subscription):
        return
    sizes_mb = _capacities_mb(target)
    of_one_mb, taken_mb = _of_one_partition_mb(entity), made_mb(entity, target)
    if of_one_mb != taken_mb:
        yield _loss(
            entity,
            "MaxSizeInMegabytes",
            f"{of_one_mb:,} becomes {taken_mb:,}: the {target.value} tier takes "
            f"{', '.join(f'{each:,}' for each in sizes_mb)}.",
        )
    own_kb = message_size_max_bytes(entity, source) // 1024
    _, taken_bytes = at_target(entity, None, target)
    if taken_bytes // 1024 < own_kb:
        yield _loss(
            entity,
            "MaxMessageSizeInKilobytes",
            f"{own_kb:,} becomes {taken_bytes // 1024:,}, the largest of the {target.value} tier.",
        )


def _capacities_mb(tier: model.Tier) -> tuple[int, ...]:
    return CAPACITIES_MB + (PREMIUM_CAPACITIES_MB if tier is model.Tier.PREMIUM else ())


def _of_one_partition_mb(entity: model.Queue | model.Topic) -> int:
    """Return the size with which an entity is made: of a partitioned one that of a partition."""
    return capacity_mb(entity) // (16 if entity.enable_partitioning else 1)


def staying(
    entity: model.Entity, there: model.Entity, source: model.Tier, target: model.Tier
) -> Iterator[MigrationFinding]:
    """Yield what the target's definition of an entity has otherwise, and a way back leaves so.

    Its rules are a loss: what they select at the target they do not select at the source.

    Args:
        there: the entity at the target, of the same kind.
        source, target: the tiers.
    """
    for name, field, old, new in _differing_properties(entity, there, source, target):
        is_of_copy = field in ("max_size_mb", "max_message_size_kb", "status")
        if not is_of_copy:  # a tier may have taken no other one
            text = f"it is {old} at the target, and stays {new} at the source."
            yield MigrationFinding(level="note", entity=entity.path, subject=name, text=text)
    if not isinstance(entity, model.Subscription) or not isinstance(there, model.Subscription):
        return
    wanted = {each.name.lower(): each for each in entity.rules}
    found = {each.name.lower(): each for each in there.rules}
    for name in _differing_names(wanted, found):
        own, other = wanted.get(name), found.get(name)
        if own is None and other is not None:
            text = f"rule {other.name!r} is at the target alone: make it at the source."
        elif other is None and own is not None:
            text = f"rule {own.name!r} is at the source alone: the target's was removed."
        else:
            text = f"rule {name!r} has another filter or action at the target: change the source's."
        yield _loss(entity, "Rules", text)


def _differing_properties(
    entity: model.Entity, there: model.Entity, source: model.Tier, target: model.Tier
) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, field, the target's value and the source's of each property that differs."""
    for name, known in PROPERTIES.items():
        if not hasattr(entity, known.field) or name in _OF_NO_EFFECT:
            continue
        wanted = _value(entity, known.field, source)
        found = _value(there, known.field, target)
        if wanted != found:
            yield name, known.field, _shown(known.field, found), _shown(known.field, wanted)


def _differing(
    entity: model.Entity, there: model.Entity, source: model.Tier, target: model.Tier
) -> Iterator[MigrationFinding]:
    for name, field, old, new in _differing_properties(entity, there, source, target):
        if field in CREATE_ONLY:
            yield MigrationFinding(
                level="refusal",
                entity=entity.path,
                subject=name,
                text=f"it is {new}, and {old} at the target, where it is fixed when the entity is "
                "made: delete it there, or leave it out.",
            )
        else:
            yield _change(entity, name, f"{old} at the target becomes {new}.")
    if not isinstance(entity, model.Subscription) and not isinstance(there, model.Subscription):
        yield from _differing_access(entity, there)
    if isinstance(entity, model.Subscription) and isinstance(there, model.Subscription):
        yield from _differing_rules(entity, there)


def _value(entity: model.Entity, field: str, tier: model.Tier) -> object:
    value = getattr(entity, field)
    if field == "max_message_size_kb":
        return TIER_MESSAGE_SIZE_KB[tier] if value is None else value
    if field == "max_size_mb" and isinstance(entity, model.Queue | model.Topic):
        return capacity_mb(entity)
    if field.endswith("_ms") and is_forever(value):
        return None
    return value.lower() if field in _NAMES else value


def _shown(field: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() if field.endswith("_ms"):
            return _duration(value)
        case int():
            return f"{value:,}"
        case None:
            return "for ever"
        case model.EntityStatus():
            return value.value
        case "":
            return "nothing"
    return repr(value)


def _duration(value_ms: int) -> str:
    return "for ever" if is_forever(value_ms) else format_duration(value_ms)


def _differing_access(
    entity: model.Queue | model.Topic, there: model.Queue | model.Topic
) -> Iterator[MigrationFinding]:
    """Yield the shared access rules that differ; no key is shown."""
    wanted = {each.name.lower(): each for each in entity.authorization_rules}
    found = {each.name.lower(): each for each in there.authorization_rules}
    for name in _differing_names(wanted, found):
        own, other = wanted.get(name), found.get(name)
        shown = (own or other or next(iter(wanted.values()))).name
        if other is None:
            text = f"{shown!r} comes to be."
        elif own is None:
            text = f"{shown!r} is at the target alone, and stays."
        elif own.rights != other.rights:
            text = f"{shown!r} has other rights at the target."
        else:
            text = f"{shown!r} has another key at the target."
        yield _change(entity, "AuthorizationRules", text)


def _differing_rules(
    entity: model.Subscription, there: model.Subscription
) -> Iterator[MigrationFinding]:
    wanted = {each.name.lower(): each for each in entity.rules}
    found = {each.name.lower(): each for each in there.rules}
    for name in _differing_names(wanted, found):
        own, other = wanted.get(name), found.get(name)
        shown = (own or other or next(iter(wanted.values()))).name
        if other is None:
            text = f"{shown!r} comes to be."
        elif own is None:
            text = f"{shown!r} is at the target alone, and would take messages: it goes."
        else:
            text = f"{shown!r} has another filter or action at the target."
        yield _change(entity, "Rules", text)


def _differing_names(wanted: Mapping[str, object], found: Mapping[str, object]) -> list[str]:
    return [
        name for name in sorted(wanted.keys() | found.keys()) if wanted.get(name) != found.get(name)
    ]


def _loss(entity: model.Entity, subject: str, text: str) -> MigrationFinding:
    return MigrationFinding(level="loss", entity=entity.path, subject=subject, text=text)


def _change(entity: model.Entity, subject: str, text: str) -> MigrationFinding:
    return MigrationFinding(level="change", entity=entity.path, subject=subject, text=text)
