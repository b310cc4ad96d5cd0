"""Whether a target takes the messages of an entity by their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridge.model import entity as model
from bridge.operations.migration.comparison import at_target
from bridge.operations.migration.findings import MigrationFinding
from bridge.operations.migration.state_counts import StateCounts


def size_findings(
    entity: model.Queue | model.Topic,
    there: model.Entity | None,
    counted: StateCounts,
    kept: StateCounts,
    tier: model.Tier,
) -> Iterator[MigrationFinding]:
    """Yield whether an entity's messages together, or one of them, are too large for the target.

    Args:
        there: the entity at the target; `None`: it is made.
        counted: the messages that come.
        kept: the target's own that stay.
        tier: the target's.
    """
    capacity, message_max = at_target(entity, there, tier)
    size_bytes = counted.told_bytes if isinstance(entity, model.Topic) else counted.size_bytes
    own_bytes = kept.told_bytes or 0
    if size_bytes is not None and size_bytes + own_bytes > capacity:
        others = f", those of the target {own_bytes:,}" if own_bytes else ""
        text = (
            f"its messages have {size_bytes:,} bytes{others}, and the target's holds "
            f"{capacity:,}: raise its MaxSizeInMegabytes, or take messages out."
        )
        yield _refusal(entity, "MaxSizeInMegabytes", text)
    yield from _largest(entity, counted, message_max)


def largest_findings(
    entity: model.Entity,
    counted: StateCounts,
    ours: Mapping[str, model.Entity],
    there: Mapping[str, model.Entity],
    tier: model.Tier,
) -> Iterator[MigrationFinding]:
    """Yield whether a message of a subscription, or its copy, is too large for its topic there.

    Args:
        ours, there: the source's entities and the target's, by the path in lower case.
    """
    if isinstance(entity, model.Subscription):
        topic = ours.get(entity.topic.lower())
        if isinstance(topic, model.Topic):
            _, most_bytes = at_target(topic, there.get(topic.path.lower()), tier)
            yield from _largest(entity, counted, most_bytes)


def _largest(
    entity: model.Entity, counted: StateCounts, most_bytes: int
) -> Iterator[MigrationFinding]:
    if counted.largest is not None and counted.largest[1] > most_bytes:
        text = (
            f"message {counted.largest[0]} has {counted.largest[1]:,} bytes, and the target takes "
            f"{most_bytes:,}: a target of the Premium tier takes more."
        )
    elif counted.largest_copy is not None and counted.largest_copy[1] > most_bytes:
        number, size_bytes = counted.largest_copy
        text = (
            f"the copy of message {number}, which says what number it had, has {size_bytes:,} "
            f"bytes, and the target takes {most_bytes:,}: receive that message first, or have a "
            "target of the Premium tier."
        )
    else:
        return
    yield _refusal(entity, "MaxMessageSizeInKilobytes", text)


def _refusal(entity: model.Entity, subject: str, text: str) -> MigrationFinding:
    return MigrationFinding(level="refusal", entity=entity.path, subject=subject, text=text)
