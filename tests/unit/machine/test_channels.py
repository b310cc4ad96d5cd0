"""Which RabbitMQ has its consumers on which channels."""

from __future__ import annotations

import pytest

from bridge.machine.channels import Channels


@pytest.mark.parametrize(
    ("can_return", "is_clustered", "expected"),
    [
        (True, False, Channels.SHARED),
        (True, True, Channels.SPENT),
        (False, False, Channels.REUSED),
        (False, True, Channels.SHARED),
    ],
)
def test_the_channels_follow_from_version_and_nodes(
    can_return: bool, is_clustered: bool, expected: Channels
) -> None:
    """A wrong choice meets a fault of RabbitMQ that loses messages when it is killed."""
    assert Channels.of(can_return=can_return, is_clustered=is_clustered) is expected
