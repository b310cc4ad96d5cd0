"""Paths of administration: an entity's, and those of its sub-queues, which are no entities."""

from __future__ import annotations

import pytest

from bridge.admin.target import What, parse_target
from bridge.model.errors import ArgumentError


@pytest.mark.parametrize(
    "path",
    [
        "/orders/$DeadLetterQueue",
        "/orders/%24deadletterqueue",
        "/a/b/$Transfer/$DeadLetterQueue",
        "/events/Subscriptions/audit/$DeadLetterQueue",
    ],
)
def test_a_sub_queue_is_no_entity(path: str) -> None:
    """400, which .NET's client raises as an ArgumentException; its entity's path describes it."""
    with pytest.raises(ArgumentError, match="sub-queue"):
        parse_target(path)


@pytest.mark.parametrize("path", ["/orders", "/a/b", "/dead/letter$queue", "/$unknown"])
def test_other_paths_are_those_of_entities(path: str) -> None:
    """Whether they exist or not."""
    target = parse_target(path)
    assert (target.what, target.entity) == (What.ENTITY, path[1:])
