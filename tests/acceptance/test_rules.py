"""SQL filters, actions and rules through the real Python client.

It has no verbs for rules over AMQP, so the requests that manage rules are made from Azure's page on
requests and responses, as .NET sends them, and go through the client's own `$management` link.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from tests.acceptance.sdk import client_of, expect_silence, take

ENTITIES: dict[str, Any] = {}


def rule(name: str, expression: str, action: str = "") -> dict[str, Any]:
    """A rule with a SQL filter in the emulator's schema."""
    properties: dict[str, Any] = {
        "FilterType": "Sql",
        "SqlFilter": {"SqlExpression": expression},
    }
    if action:
        properties["Action"] = {"SqlExpression": action}
    return {"Name": name, "Properties": properties}


TOPICS = [
    {
        "Name": "shop",
        "Subscriptions": [
            {
                "Name": "large",
                "Rules": [rule("r", "quantity > 10 AND sys.Label LIKE 'order%'")],
            },
            {
                "Name": "acted",
                "Rules": [
                    rule("plain", "store IN ('s1', 's2')"),
                    rule("half", "store = 's1'", "SET quantity = quantity / 2; REMOVE note;"),
                    rule("label", "store = 's1'", "SET sys.Label = 'low ' + store"),
                    rule("broken", "store = 's1'", "SET sys.SequenceNumber = 1"),
                ],
            },
            {
                "Name": "keeps",
                "Properties": {"DeadLetteringOnFilterEvaluationExceptions": True},
                "Rules": [rule("r", "quantity > 'a'")],
            },
            {
                "Name": "drops",
                "Properties": {"DeadLetteringOnFilterEvaluationExceptions": False},
                "Rules": [rule("r", "quantity > 'a'")],
            },
        ],
    },
    {"Name": "ruled", "Subscriptions": [{"Name": "one"}, {"Name": "two"}]},
]

_log = logging.getLogger(__name__)

Manage = Callable[[str, dict[str, Any]], tuple[int, Any]]


def publish(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    """Send messages to a topic, one by one."""
    with client.get_topic_sender(topic) as sender:
        for message in messages:
            sender.send_messages(message)


def order(body: str, quantity: object, **more: Any) -> ServiceBusMessage:
    """A message with properties that the filters look at."""
    properties = {"quantity": quantity, **more}
    return ServiceBusMessage(body, subject="order", application_properties=properties)


def properties_of(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """The application properties as text and plain values."""
    return {
        key.decode(): value.decode() if isinstance(value, bytes) else value
        for key, value in (message.application_properties or {}).items()
    }


def manage(receiver: ServiceBusReceiver) -> Manage:
    """What sends a request to the `$management` of the receiver's subscription."""

    def ask(operation: str, body: dict[str, Any]) -> tuple[int, Any]:
        def answered(status: int, reply: Any, description: Any, amqp_transport: Any) -> Any:
            if status in (200, 204):
                return status, reply.value
            condition = reply.application_properties.get(b"errorCondition")
            return amqp_transport.handle_amqp_mgmt_error(
                _log, "Refused.", condition, description, status
            )

        name = f"com.microsoft:{operation}".encode()
        return receiver._mgmt_request_response_with_retry(name, body, answered)  # type: ignore[no-any-return]

    return ask


def described(expression: str, action: str | None = None) -> dict[str, Any]:
    """The description of a rule with a SQL filter; .NET sends a null for 'no action'."""
    return {
        "sql-filter": {"expression": expression},
        "sql-rule-action": None if action is None else {"expression": action},
    }


def names(ask: Manage) -> list[str]:
    """The names of the rules there are."""
    status, value = ask("enumerate-rules", {"top": 100, "skip": 0})
    if status == 204:
        return []
    return [entry[b"rule-description"][2].decode() for entry in value[b"rules"]]


def test_a_sql_filter_chooses(bridge: Any) -> None:
    """By application and system properties; unknown is not true."""
    with client_of(bridge) as client:
        publish(
            client,
            "shop",
            order("small", 10),
            order("large", 11),
            ServiceBusMessage("nothing", subject="order"),
            ServiceBusMessage("bill", subject="bill", application_properties={"quantity": 11}),
        )
        with client.get_subscription_receiver("shop", "large") as receiver:
            (found,) = take(receiver)
            assert (str(found), found.sequence_number) == ("large", 1)
            expect_silence(receiver)


def test_each_rule_with_an_action_gives_a_copy_of_its_own(bridge: Any) -> None:
    """It says by which rule; the copy without an action stays as it was sent."""
    with client_of(bridge) as client:
        publish(client, "shop", order("a", 7, store="s1", note="n"))
        publish(client, "shop", order("b", 7, store="s2"))
        with client.get_subscription_receiver("shop", "acted") as receiver:
            plain, half, label, other = take(receiver, 4)
        assert [str(each) for each in (plain, half, label, other)] == ["a", "a", "a", "b"]
        assert [each.sequence_number for each in (plain, half, label, other)] == [1, 2, 3, 5]
        sent = {"quantity": 7, "store": "s1", "note": "n"}
        assert (properties_of(plain), plain.subject) == (sent, "order")
        assert properties_of(half) == {"quantity": 3, "store": "s1", "RuleName": "half"}
        assert properties_of(label) == {**sent, "RuleName": "label"}
        assert (label.subject, half.subject) == ("low s1", "order")
        assert half.message_id == plain.message_id
        # The action that failed is a dead letter: that is the default of a subscription.
        dead = client.get_subscription_receiver(
            "shop", "acted", sub_queue=ServiceBusSubQueue.DEAD_LETTER
        )
        with dead as receiver:
            (failed,) = take(receiver)
        assert (failed.dead_letter_reason, failed.sequence_number) == ("FilterException", 4)
        assert "SequenceNumber" in (failed.dead_letter_error_description or "")


def test_a_filter_that_fails_dead_letters_where_that_is_wanted(bridge: Any) -> None:
    """With Azure's reason and its rule's description; elsewhere the message is just not taken."""
    with client_of(bridge) as client:
        publish(client, "shop", order("bad", 1))
        kept, dropped = (
            client.get_subscription_receiver("shop", name, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
            for name in ("keeps", "drops")
        )
        with kept as receiver:
            bodies = {str(each): each.dead_letter_reason for each in take(receiver)}
            assert set(bodies.values()) == {"FilterException"}
        with dropped as receiver:
            expect_silence(receiver)


def test_rules_are_added_listed_and_removed(bridge: Any) -> None:
    """By name, with their times, and they apply to what is sent after the answer."""
    began_ms = int(time.time() * 1000)
    with (
        client_of(bridge) as client,
        client.get_subscription_receiver("ruled", "one") as receiver,
    ):
        ask = manage(receiver)
        assert names(ask) == ["$Default"]
        added = {
            "rule-name": "large",
            "rule-description": {
                **described("quantity > 10", "SET seen = TRUE"),
                "rule-name": "large",
            },
        }
        assert ask("add-rule", added)[0] == 200
        with pytest.raises(MessagingEntityAlreadyExistsError):
            ask("add-rule", added)
        assert ask("remove-rule", {"rule-name": "$default"})[0] == 200
        correlated = {
            "label": "order",
            "properties": {"store": "s1", "count": 3, "when": datetime(2026, 1, 1, tzinfo=UTC)},
        }
        ask(
            "add-rule",
            {"rule-name": "c", "rule-description": {"correlation-filter": correlated}},
        )
        assert names(ask) == ["c", "large"]
        _, value = ask("enumerate-rules", {"top": 1, "skip": 0})
        (entry,) = value[b"rules"]
        correlation, action, name, made = entry[b"rule-description"]
        assert (correlation[4], name, action) == (b"order", b"c", [])
        when = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
        assert correlation[8] == {b"store": b"s1", b"count": 3, b"when": when}
        assert began_ms <= made <= time.time() * 1000

        publish(client, "ruled", order("a", 11), order("b", 1), order("c", 12))
        found = take(receiver, 2)
        assert [str(each) for each in found] == ["a", "c"]
        assert properties_of(found[0]) == {"quantity": 11, "seen": True, "RuleName": "large"}

        ask("remove-rule", {"rule-name": "large"})
        ask("remove-rule", {"rule-name": "c"})
        assert ask("enumerate-rules", {"top": 100, "skip": 0}) == (204, None)
        publish(client, "ruled", order("d", 11))
        expect_silence(receiver)


@pytest.mark.parametrize(
    ("operation", "body", "error"),
    [
        ("remove-rule", {"rule-name": "none"}, MessagingEntityNotFoundError),
        ("remove-rule", {"a": 1}, "'rule-name' must be a string"),
        ("add-rule", {"rule-name": "x"}, "'rule-description' must be a map"),
        ("add-rule", {"rule-name": "x", "rule-description": {"a": 1}}, "either a 'sql-filter'"),
        ("add-rule", {"rule-name": "x", "rule-description": described("a = ")}, "argument-error"),
        (
            "add-rule",
            {"rule-name": "x", "rule-description": described("a = '" + "x" * 1020 + "'")},
            "1024",
        ),
        (
            "add-rule",
            {"rule-name": "x", "rule-description": described("a = 1", "SET")},
            "'x'.*property",
        ),
        ("add-rule", {"rule-name": "x" * 51, "rule-description": described("a = 1")}, "50"),
        ("enumerate-rules", {"top": -1, "skip": 0}, "not below 0"),
    ],
)
def test_what_is_no_rule_is_refused(
    bridge: Any, operation: str, body: dict[str, Any], error: Any
) -> None:
    """By name, and nothing changes."""
    with (
        client_of(bridge) as client,
        client.get_subscription_receiver("ruled", "two") as receiver,
    ):
        ask = manage(receiver)
        kind, words = (ServiceBusError, error) if isinstance(error, str) else (error, None)
        with pytest.raises(kind, match=words):
            ask(operation, body)
        assert names(ask) == ["$Default"]


def test_a_topic_has_no_rules(bridge: Any) -> None:
    """Neither has a dead-letter queue."""
    with client_of(bridge) as client:
        dead = client.get_subscription_receiver(
            "ruled", "two", sub_queue=ServiceBusSubQueue.DEAD_LETTER
        )
        with dead as receiver, pytest.raises(ServiceBusError, match="Only a subscription"):
            manage(receiver)("enumerate-rules", {"top": 1, "skip": 0})


def test_rules_need_the_right_to_listen(start_bridge: Any, tmp_path: Path) -> None:
    """No more, as at Azure; who may send only is refused."""
    keys = tmp_path / "rules.json"
    keys.write_text(
        json.dumps(
            {
                "rules": [
                    {"name": "listener", "primaryKey": "a-key", "rights": ["Listen"]},
                    {"name": "sender", "primaryKey": "a-key", "rights": ["Send"]},
                ]
            }
        )
    )
    bridge = start_bridge("--auth", str(keys))

    def rules_as(name: str) -> list[str]:
        text = (
            f"Endpoint=sb://localhost:{bridge.port};SharedAccessKeyName={name};"
            "SharedAccessKey=a-key;UseDevelopmentEmulator=true;"
        )
        with (
            ServiceBusClient.from_connection_string(text, retry_total=0) as client,
            client.get_subscription_receiver("ruled", "one") as receiver,
        ):
            ask = manage(receiver)
            ask("add-rule", {"rule-name": "x", "rule-description": described("a = 1")})
            return names(ask)

    assert rules_as("listener") == ["$Default", "x"]
    with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
        rules_as("sender")
