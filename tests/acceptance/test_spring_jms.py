"""The unmodified Spring Cloud Azure JMS starter with its defaults; docs/sdks.md has what it asks.

Of the connection string it takes the host, and speaks TLS on port 5671.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.acceptance.connecting import without_flag
from tests.acceptance.driver import Outcome, java_program, java_trust_store, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge, bridge_of
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.sdks

WORK = (
    "listener",
    "listener_that_throws",
    "sends_of_a_listener_that_throws",
    "reply_of_a_listener",
    "request_and_reply",
    "transaction_of_a_template",
    "nothing_is_prefetched",
    "types",
    "subscription_as_a_queue",
)
SETTINGS = ("", "_cached", "_pooled")
"""The starter's default, a connection for each send, and its two ways to keep connections."""

SCENARIOS = (
    *(f"{name}{suffix}" for suffix in SETTINGS for name in WORK),
    "durable_subscription",
)

PREFIX = "spring"
QUEUES = (
    "plain",
    "failing",
    "forwarding",
    "forwarded",
    "asked",
    "answered",
    "sent",
    "slow",
    "types",
)
ENTITIES = {f"{PREFIX}-{name}": {"LockDuration": "PT1M", "MaxDeliveryCount": 3} for name in QUEUES}
TOPICS = [
    {"Name": f"{PREFIX}-news", "Subscriptions": [{"Name": "all"}]},
    {"Name": f"{PREFIX}-events", "Subscriptions": []},
]


@pytest.fixture(scope="module")
def bridge(broker: Broker, module_vhost: str, config: Path) -> Iterator[Bridge]:
    """A bridge at the only port that the starter knows."""
    flags = ("--tls-port", "5671")
    started = bridge_of(broker, module_vhost, *flags, config=config)
    started.start()
    yield started
    started.stop()


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    assert bridge.ca is not None
    with TemporaryDirectory() as folder:
        trust = java_trust_store(bridge.ca, Path(folder))
        program = java_program("Spring", *trust, of="spring")
        return run_scenarios(program, without_flag(bridge), PREFIX)
