"""Whether a target takes the messages of an entity by their sizes."""

from __future__ import annotations

from collections.abc import Iterator

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
    """Yield what of an entity's messages is too large for the target.

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
    if counted.largest is not None and counted.largest[1] > message_max:
        text = (
            f"message {counted.largest[0]} has {counted.largest[1]:,} bytes, and the target takes "
            f"{message_max:,}: a target of the Premium tier takes more."
        )
        yield _refusal(entity, "MaxMessageSizeInKilobytes", text)


def _refusal(entity: model.Entity, subject: str, text: str) -> MigrationFinding:
    return MigrationFinding(level="refusal", entity=entity.path, subject=subject, text=text)
