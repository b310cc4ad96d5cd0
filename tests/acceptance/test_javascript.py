"""The unmodified JavaScript client against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.acceptance.driver import (
    COMMON_SCENARIOS,
    HERE,
    Outcome,
    node_program,
    run_scenarios,
    run_side_by_side,
)
from tests.acceptance.rest import KEY, KEY_NAME
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.acceptance.sdk import client_of
from tests.fixtures.bridge import Bridge
from tests.fixtures.strange_values import send_strange

SCENARIOS = (
    *COMMON_SCENARIOS,
    "array_send",
    "subscribe",
    "schedule_past",
    "long_time_to_live",
    "annotated",
    "strange_values",
    "rules",
    "duplicates",
    "session_case",
    "session_subscribe",
    "session_refused",
    "session_many",
)

QUEUES = ("javascript-1", "javascript-2", "javascript-3")
KINDS: dict[str, dict[str, object]] = {
    "": {
        "LockDuration": "PT5S",
        "MaxDeliveryCount": 10,
        "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
    },
    "-strange": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "-unique": {"RequiresDuplicateDetection": True},
    "-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
    "-many": {"LockDuration": "PT1M", "RequiresSession": True},
}

FAILING = "javascript-failing"
ENTITIES = {
    **{f"{queue}{kind}": KINDS[kind] for queue in QUEUES for kind in KINDS},
    FAILING: {"LockDuration": "PT5M", "MaxDeliveryCount": 10},
}

TOPICS = [{"Name": f"{queue}-topic", "Subscriptions": [{"Name": "rules"}]} for queue in QUEUES]


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program; one queue has what Python's client and another library have sent."""
    body = {"none": {"TYPE": "ARRAY", "VALUE": []}, "last": "!"}
    with client_of(bridge) as client:
        for queue in QUEUES:
            with client.get_queue_sender(f"{queue}-strange") as sender:
                sender.send_messages(AmqpAnnotatedMessage(value_body=body))
            send_strange(bridge.port, f"{queue}-strange", KEY_NAME, KEY)
    return run_side_by_side(node_program("scenarios.mjs"), bridge.connection_string, QUEUES)


def test_a_message_whose_handler_fails_once_comes_again(bridge: Bridge) -> None:
    """Of forty messages ten are abandoned beside completions: each is handled, none is lost."""
    node, program = node_program("failing_handler.mjs")
    command = [node, "--require", str(HERE / "node" / "corrected.cjs"), program]
    outcomes = run_scenarios(command, bridge.connection_string, FAILING)

    assert outcomes["failing_handler"].is_ok, outcomes["failing_handler"].detail
