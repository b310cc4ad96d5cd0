"""What an entity of a migration's source does not allow by its status, and how that is mended."""

from __future__ import annotations

from bridge.model import entity as model
from bridge.operations.migration.command_words import command_words
from bridge.operations.migration.state_counts import StateCounts


def refused_copy(entity: model.Entity, counted: StateCounts) -> str:
    """Return why an entity of the source cannot be copied, as a sentence; "" if it can.

    Args:
        counted: its messages.
    """
    status = entity.status
    if _is_shut(entity):
        return _text(entity, "its messages cannot be looked at")
    if not status.allows_sends and _has_scheduled(entity, counted):
        return _text(entity, "its scheduled messages cannot be cancelled")
    if _has_sessions(entity) and not status.allows_receives:
        return _text(entity, "its sessions cannot be locked, to read their states")
    return ""


def refused_removal(entity: model.Entity, counted: StateCounts) -> str:
    """Return why messages of an entity of the source cannot be removed, likewise."""
    status = entity.status
    if _is_shut(entity):
        return _text(entity, "its messages cannot be looked at")
    if not isinstance(entity, model.Topic) and not status.allows_receives:
        return _text(entity, "its messages cannot be received")
    if not status.allows_sends and _has_scheduled(entity, counted):
        return _text(entity, "its scheduled messages cannot be cancelled")
    return ""


def _is_shut(entity: model.Entity) -> bool:
    return not entity.status.allows_sends and not entity.status.allows_receives


def _has_scheduled(entity: model.Entity, counted: StateCounts) -> bool:
    return not isinstance(entity, model.Subscription) and bool(counted.counts.get("scheduled"))


def _has_sessions(entity: model.Entity) -> bool:
    return not isinstance(entity, model.Topic) and entity.requires_session


def _text(entity: model.Entity, what: str) -> str:
    return (
        f"it is {entity.status.value} at the source, so {what}: make it Active there, while "
        f"nothing sends or receives (`busbridge update {command_words(entity)} --status Active`)."
    )
