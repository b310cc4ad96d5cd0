"""A rule that is not known whole takes no message: never more messages than Azure gives it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.model import entity as model
from policies.readers import armtemplate

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
TOPICS = "Microsoft.ServiceBus/namespaces/topics"


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "ns/t/s/r", "properties": "[reference('x')]"},
        {
            "name": "[concat('ns/t/s/', uniqueString('x'))]",
            "properties": {"sqlFilter": {"sqlExpression": "a = 1"}},
        },
    ],
)
def test_a_rule_of_a_template_that_only_azure_knows_takes_no_message(rule: dict[str, Any]) -> None:
    """Be it its filter or its name; and its subscription does not get Azure's default instead."""
    resources = [
        {"type": TOPICS, "name": "ns/t"},
        {"type": f"{TOPICS}/subscriptions", "name": "ns/t/s"},
        {"type": f"{TOPICS}/subscriptions/rules", **rule},
    ]

    reading = armtemplate.read(json.dumps({"$schema": SCHEMA, "resources": resources}), "t.json")

    assert _rules_of(reading.namespace) == ()
    assert "The subscription gets no message by it." in reading.findings[-1].message


def _rules_of(namespace: model.Namespace) -> tuple[model.Rule, ...]:
    """Return the rules of the only subscription."""
    (topic,) = namespace.topics
    (subscription,) = topic.subscriptions
    return subscription.rules
