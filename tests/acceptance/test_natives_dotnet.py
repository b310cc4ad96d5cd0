"""What RabbitMQ's own client for .NET publishes, as an SDK receives it."""

from __future__ import annotations

import pytest

from tests.acceptance.driver import dotnet_program, run_scenarios
from tests.acceptance.sdk import client_of, take
from tests.fixtures.bridge import Bridge

pytestmark = pytest.mark.sdks

ENTITIES: dict[str, dict[str, object]] = {"natives": {}}


def test_the_headers_of_its_messages(bridge: Bridge) -> None:
    """A decimal with its sign, a text that is none as binary, and nothing of its own confirms.

    An unsigned number of 64 bits and .NET's own types it refuses itself.
    """
    outcomes = run_scenarios(dotnet_program("natives"), bridge.amqp_url, "natives")
    for name in ("publish", "refused"):
        assert outcomes[name].is_ok, outcomes[name].detail
    with client_of(bridge) as client, client.get_queue_receiver("natives") as receiver:
        (message,) = take(receiver)
    assert message.application_properties == {
        b"price": 79.9,
        b"debt": -79.9,
        b"small": -0.01,
        b"text": b"t",
        b"long": 3,
        b"raw": b"\xff\x00",
        b"when": 1_700_000_000_000,
    }
