"""A source's status that stands against a migration is named before anything is changed."""

from __future__ import annotations

import pytest

from bridge.model import entity as model
from bridge.model.entity import EntityStatus
from bridge.operations.migration.closed_source import refused_copy, refused_removal
from bridge.operations.migration.state_counts import StateCounts

SHUT, SENDS, RECEIVES = (
    EntityStatus.DISABLED,
    EntityStatus.SEND_DISABLED,
    EntityStatus.RECEIVE_DISABLED,
)
LOOK, CANCEL = "its messages cannot be looked at", "its scheduled messages cannot be cancelled"
TAKE = "its messages cannot be received"


def queue(status: EntityStatus, *, has_sessions: bool = False) -> model.Queue:
    """A queue of a status."""
    return model.Queue(name="q", status=status, requires_session=has_sessions)


@pytest.mark.parametrize(
    ("entity", "scheduled", "copy", "removal"),
    [
        (queue(EntityStatus.ACTIVE, has_sessions=True), 1, "", ""),
        (queue(SHUT), 0, LOOK, LOOK),
        (queue(SENDS), 0, "", ""),
        (queue(SENDS), 1, CANCEL, CANCEL),
        (queue(RECEIVES), 1, "", TAKE),
        (queue(RECEIVES, has_sessions=True), 0, "its sessions cannot be locked", TAKE),
        (model.Topic(name="t", status=SHUT), 0, LOOK, LOOK),
        (model.Topic(name="t", status=SENDS), 1, CANCEL, CANCEL),
        (model.Topic(name="t", status=SENDS), 0, "", ""),
        (model.Subscription(topic="t", name="s", status=RECEIVES), 0, "", TAKE),
    ],
)
def test_what_a_status_forbids_is_named(
    entity: model.Entity, scheduled: int, copy: str, removal: str
) -> None:
    """And nothing else: an entity that only lacks what is not needed is taken."""
    counted = StateCounts(counts={"scheduled": scheduled} if scheduled else {})
    for wanted, text in ((copy, refused_copy(entity, counted)),
                         (removal, refused_removal(entity, counted))):  # fmt: skip
        assert wanted in text
        assert bool(wanted) == bool(text)


def test_the_remedy_is_a_command() -> None:
    """For a subscription with both of its names."""
    shut = model.Subscription(topic="t", name="s", status=SHUT)
    text = refused_copy(shut, StateCounts())
    assert text.startswith("it is Disabled at the source, so ")
    assert "`busbridge update subscription t s --status Active`" in text
