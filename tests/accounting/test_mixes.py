"""Ordinary use: clients that settle in every way, side by side, and each message in one place."""

from __future__ import annotations

import pytest

from tests.accounting.mix import Mix, other_client, python_client
from tests.acceptance.driver import node_program
from tests.fixtures.bridge import Bridge

LANES = ("azure", "azure-aio", "pika", "aio-pika")


def javascript() -> list[str]:
    """Return the command of the JavaScript program, with the corrected copy of rhea's sessions."""
    node, program = node_program("accounting.mjs")
    return [node, "--require", program.replace("accounting.mjs", "corrected.cjs"), program]


@pytest.mark.timeout(600)
def test_javascript_clients_beside_each_other(bridge: Bridge) -> None:
    """Processors whose handlers throw, batches and sessions."""
    clients = [
        other_client(javascript, "processor", "plain"),
        other_client(javascript, "batch", "plain"),
        other_client(javascript, "sessions", "sessions"),
        other_client(javascript, "processor", "target"),
        other_client(javascript, "processor", "events/subscriptions/all"),
        other_client(javascript, "batch", "unique"),
    ]
    print(Mix(bridge, [of(bridge) for of in clients], seed=1).run(1_000))


@pytest.mark.timeout(600)
def test_python_clients_beside_each_other(bridge: Bridge) -> None:
    """The SDK in both styles and the library in both lanes, on every kind of place."""
    clients = [
        *(python_client(lane, "batch", "plain") for lane in LANES),
        *(python_client(lane, "sessions", "sessions") for lane in ("azure", "pika", "aio-pika")),
        python_client("azure", "batch", "unique"),
        python_client("azure-aio", "batch", "target"),
        python_client("pika", "batch", "target"),
        python_client("azure", "batch", "events/subscriptions/all"),
        python_client("aio-pika", "batch", "events/subscriptions/all"),
        python_client("azure", "delete", "taken"),
        python_client("pika", "delete", "taken"),
    ]
    print(Mix(bridge, [of(bridge) for of in clients]).run(1_500))
