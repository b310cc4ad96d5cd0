"""Values and times as .NET's own client has them: decimals, types of rules, what a TTL says."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pytest
from azure.servicebus import ServiceBusMessage

from tests.acceptance.driver import Outcome, dotnet_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.acceptance.sdk import client_of, send, take
from tests.fixtures.bridge import Bridge

pytestmark = pytest.mark.sdks

SCENARIOS = (
    "every_decimal",
    "decimal_of_a_settlement",
    "decimal_in_filters",
    "decimal_in_actions",
    "rules_over_http",
    "rules_by_rule_manager",
    "times_of_a_capped_message",
    "times_of_a_scheduled_message",
    "times_of_a_peek",
)

ENTITIES: dict[str, dict[str, object]] = {"values-python": {}}
TOPICS = [{"Name": "values-topic", "Subscriptions": []}]

DECIMALS = ("0", "-0.00", "79.90", "42949672.95", "42949672.96", "12345678901234567890.123456")


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(dotnet_program("values"), bridge.connection_string, "values")


def dotnet(bridge: Bridge, verb: str) -> None:
    """Send or receive a message with all of `DECIMALS` by .NET's client."""
    command = [*dotnet_program("values"), verb, *DECIMALS]
    found = run_scenarios(command, bridge.connection_string, "values-python")
    assert found[verb].is_ok, found[verb].detail


def parts(values: Mapping[bytes, Decimal]) -> list[object]:
    """Sign, digits and places of a message's decimals."""
    return [values[f"v{at}".encode()].as_tuple() for at in range(len(DECIMALS))]


def test_dotnet_and_the_python_sdk_have_each_other_s_decimals(bridge: Bridge) -> None:
    """To the last digit, both ways, also where the Python SDK misreads .NET's older form."""
    wanted = [Decimal(each).as_tuple() for each in DECIMALS]
    with client_of(bridge) as client:
        dotnet(bridge, "send")
        with client.get_queue_receiver("values-python") as receiver:
            (message,) = take(receiver)
        assert parts(message.application_properties) == wanted

        values = {f"v{at}": Decimal(each) for at, each in enumerate(DECIMALS)}
        send(client, "values-python", ServiceBusMessage("x", application_properties=values))
        dotnet(bridge, "receive")
