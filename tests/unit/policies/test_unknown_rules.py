"""A rule that is not known whole takes no message: never more messages than Azure gives it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.model import entity as model
from policies.readers import read

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
TOPICS = "Microsoft.ServiceBus/namespaces/topics"


RULE = {
    "type": f"{TOPICS}/subscriptions/rules",
    "name": "[format('ns/t/s/r{0}', copyIndex())]",
    "properties": {"sqlFilter": {"sqlExpression": "a = 1"}},
}
LOOP = {"copy": {"name": "each", "count": "[length(parameters('rules'))]"}}
SECRETS = {"rules": {"type": "array", "defaultValue": "[listKeys('x', '1').rules]"}}


def module(template: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Return a nested deployment, as Bicep writes a module."""
    options = {"scope": "inner"}
    properties = {
        "expressionEvaluationOptions": options,
        "template": template,
        "parameters": parameters,
    }
    return {"type": "Microsoft.Resources/deployments", "name": "m", "properties": properties}


@pytest.mark.parametrize(
    "rule",
    [
        RULE | {"name": "ns/t/s/r", "properties": "[reference('x')]"},
        RULE
        | {
            "name": "ns/t/s/r",
            "properties": {"correlationFilter": {"properties": {"[newGuid()]": "a"}}},
        },
        RULE | {"name": "[concat('ns/t/s/', uniqueString('x'))]"},
        RULE | LOOP,
        RULE | LOOP | {"name": "[format('ns/t/s/{0}', parameters('rules')[copyIndex()].name)]"},
        module(
            {"parameters": {"r": {}}, "resources": [RULE | {"name": "[parameters('r')]"}]},
            {"r": {"value": "[concat('ns/t/s/', parameters('rules')[copyIndex()].name)]"}},
        )
        | LOOP,
    ],
    ids=["filter", "property", "name", "loop", "loop with names", "loop of modules"],
)
def test_a_rule_of_a_template_that_only_azure_knows_takes_no_message(rule: dict[str, Any]) -> None:
    """Be it filter, name or number; its subscription does not get Azure's default instead."""
    resources = [
        {"type": TOPICS, "name": "ns/t"},
        {"type": f"{TOPICS}/subscriptions", "name": "ns/t/s"},
        rule,
    ]
    template = {"$schema": SCHEMA, "parameters": SECRETS, "resources": resources}

    reading = read(json.dumps(template), "t.json")

    assert _rules_of(reading.namespace) == ()
    assert "The subscription gets no message by it." in reading.findings[-1].message


@pytest.mark.parametrize(
    ("values", "unknown"),
    [
        (
            {"filter_type": "CorrelationFilter", "correlation_filter": [{"label": "x"}]},
            {"correlation_filter": [{"session_id": True, "properties": {"tenant": True}}]},
        ),
        ({"filter_type": "SqlFilter"}, {"sql_filter": True}),
        ({"filter_type": "SqlFilter", "sql_filter": "a = 1", "name": None}, {"name": True}),
    ],
)
def test_a_rule_of_a_plan_that_is_not_known_whole_takes_no_message(
    values: dict[str, Any], unknown: dict[str, Any]
) -> None:
    """Terraform leaves out of a plan what it does not know, as if it were not compared."""
    topic_id = "/namespaces/ns/topics/t"
    resources = [
        _resource("topic", "t"),
        _resource("subscription", "s", topic_id=topic_id),
        _resource("subscription_rule", "r") | {"values": {"name": "r", **values}},
    ]
    resources[-1]["values"]["subscription_id"] = f"{topic_id}/subscriptions/s"
    change = {"address": resources[-1]["address"], "change": {"after_unknown": unknown}}
    plan = {
        "format_version": "1.2",
        "planned_values": {"root_module": {"resources": resources}},
        "resource_changes": [change],
    }

    reading = read(json.dumps(plan), "plan.json")

    assert _rules_of(reading.namespace) == ()
    assert "The subscription gets no message by it." in reading.findings[-1].message


def test_a_comparison_that_no_message_satisfies_is_a_finding() -> None:
    """The rule is taken over as it is: Azure takes it as well, and it fails for every message."""
    rule = RULE | {
        "name": "ns/t/s/r",
        "properties": {"sqlFilter": {"sqlExpression": "sys.DeliveryCount = '5'"}},
    }
    resources = [
        {"type": TOPICS, "name": "ns/t"},
        {"type": f"{TOPICS}/subscriptions", "name": "ns/t/s"},
        rule,
    ]

    reading = read(json.dumps({"$schema": SCHEMA, "resources": resources}), "t.json")

    (kept,) = _rules_of(reading.namespace)
    assert kept.filter == model.SqlFilter(expression="sys.DeliveryCount = '5'")
    found = reading.findings[-1]
    assert (found.entity, found.property, found.grade) == (
        "t/Subscriptions/s",
        "Rules",
        "approximate",
    )
    assert "no such operator for a number and a string" in found.message


def _resource(kind: str, name: str, **values: Any) -> dict[str, Any]:
    """Return a resource of a plan."""
    kind = f"azurerm_servicebus_{kind}"
    values = {"name": name, **values}
    return {"address": f"{kind}.{name}", "type": kind, "name": name, "values": values}


def _rules_of(namespace: model.Namespace) -> tuple[model.Rule, ...]:
    """Return the rules of the only subscription."""
    (topic,) = namespace.topics
    (subscription,) = topic.subscriptions
    return subscription.rules
