"""What a dry run counts."""

from __future__ import annotations

import pytest

from bridge.relay.inspection.dry_run import Count
from bridge.relay.plan.choice import chain
from bridge.remote.message import RemoteMessage
from bridge.wire.mapping.sections import APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS, descriptor
from tests.unit.relay.files import file_of, route

FILE = file_of(
    route("azure/a", "local/red", name='"red"', filter="\"colour = 'red'\"", **{"else": '"rest"'})
    + route("azure/a", "local/rest", name='"rest"')
)
RED = RemoteMessage.of(data=b"x", application_properties={"colour": "red"})
LARGE = RemoteMessage.of(data=b"x", application_properties={"large": "x" * 65_500})


@pytest.mark.parametrize(
    "broken",
    [
        RemoteMessage(application_properties=descriptor(APPLICATION_PROPERTIES) + b"\xff"),
        RemoteMessage(annotations=descriptor(MESSAGE_ANNOTATIONS) + b"\xff"),
    ],
)
def test_a_message_that_cannot_be_read_is_counted_as_refused(broken: RemoteMessage) -> None:
    """As the relay would refuse it; the others are counted all the same."""
    count = Count()

    for each in (RED, broken, LARGE):
        count.add(chain(FILE, FILE.routes[0]), each, 0)

    assert count.refused == 1
    assert count.goes == {"red": 1, "rest": 1}
    assert {name: each for name, each in count.left_out.items() if each} == {"rest": 1}
