"""Keys of JSON inputs in any case, as Azure takes them; and keys that nobody knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.model import entity as model
from policies.errors import ReadError
from policies.readers import armtemplate, jsontext, read
from tests.unit.policies.test_golden import CONTOSO, sorted_by_name

GOLDEN = Path(__file__).parent / "golden"
BASE = "Microsoft.ServiceBus/namespaces"
SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
USERS_OWN = frozenset({"color"})
"""Keys that are a user's: application properties have their case."""


def recased(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with other keys."""
    if isinstance(value, dict):
        return {
            key if key in USERS_OWN else change(key): recased(each, change)
            for key, each in value.items()
        }
    return [recased(each, change) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("change", [str.upper, str.lower, str.swapcase, str.title])
@pytest.mark.parametrize("file", ["Config.json", "template.json", "bicep.json", "az.json"])
def test_keys_in_any_case_give_the_same_namespace(file: str, change: Callable[[str], str]) -> None:
    """At every level of a document: the format is recognised, and nothing of it vanishes."""
    text = json.dumps(recased(jsontext.parse((GOLDEN / file).read_text(), file).plain(), change))
    parameters = None
    if file == "template.json":
        given = json.loads((GOLDEN / "parameters.json").read_text())
        parameters = armtemplate.read_parameters(json.dumps(recased(given, change)), "p.json")

    reading = read(text, file, parameters=parameters)

    assert sorted_by_name(CONTOSO) == sorted_by_name(reading.namespace)
    assert reading.findings == ()


def test_the_rights_of_an_official_quickstart_are_read() -> None:
    """Azure's quickstart with an authorization rule writes `"Rights"`."""
    rule = {
        "Type": f"{BASE}/AuthorizationRules",
        "Name": "ns/send",
        "Properties": {"Rights": ["Send"]},
    }

    reading = read(json.dumps({"$schema": SCHEMA, "resources": [rule]}), "t.json")

    (found,) = reading.namespace.authorization_rules
    assert found.rights == {model.Right.SEND}


def rule_of(**properties: Any) -> tuple[tuple[model.Rule, ...], list[str]]:
    """Return the rules of a subscription with one rule, and what was found."""
    topics = f"{BASE}/topics"
    resources = [
        {"type": topics, "name": "ns/t"},
        {"type": f"{topics}/subscriptions", "name": "ns/t/s"},
        {"type": f"{topics}/subscriptions/rules", "name": "ns/t/s/r", "properties": properties},
    ]
    reading = read(json.dumps({"$schema": SCHEMA, "resources": resources}), "t.json")
    return reading.namespace.topics[0].subscriptions[0].rules, [
        each.message.split(": ", 2)[2] for each in reading.findings
    ]


@pytest.mark.parametrize(
    "properties",
    [
        {"sqlFiler": {"sqlExpression": "a = 1"}},
        {"sqlFilter": {"expression": "a = 1"}},
        {"filterType": "SqlFilter", "sqlFilter": {"expresion": "a = 1"}},
        {"filterType": "CorrelationFilter", "correlationFilter": {"subject": "a"}},
    ],
)
def test_a_rule_whose_filter_is_not_known_does_not_take_every_message(
    properties: dict[str, Any],
) -> None:
    """A misspelt filter is said, and is not `1=1`."""
    rules, findings = rule_of(**properties)

    assert rules == ()
    assert "is not known; it is left out." in findings[0]
    assert "rule 'r' is left out: it has no filter that is known" in findings[1]


def test_an_unknown_property_beside_a_filter_is_said() -> None:
    """With the one that is nearest; the filter is as written."""
    rules, findings = rule_of(
        FilterType="SqlFilter", SqlFilter={"SqlExpression": "a = 1"}, acton={"sqlExpression": "x"}
    )

    assert [each.filter for each in rules] == [model.SqlFilter(expression="a = 1")]
    assert findings == [
        "Subscription 't/Subscriptions/s', rule 'r': acton is not known; it is left out. Did you "
        "mean 'action'?"
    ]


def test_a_rule_whose_filter_only_azure_knows_does_not_take_every_message() -> None:
    """No rule is no message, not every message."""
    rules, findings = rule_of(sqlFilter={"sqlExpression": "[uniqueString('x')]"})

    assert rules == ()
    assert "The subscription gets no message by it." in findings[0]


def test_a_rule_without_any_filter_takes_every_message_as_at_azure() -> None:
    """`az` prints identity beside the properties, which is no unknown property."""
    assert rule_of()[0][0].filter == model.TrueFilter()
    owner = "/x/providers/Microsoft.ServiceBus/namespaces/ns/topics/t/subscriptions/s/rules/r"
    form = {
        "id": owner, "name": "r", "type": "x", "resourceGroup": "g", "location": "l",
        "systemData": None, "filterType": "SqlFilter", "action": None, "correlationFilter": None,
        "sqlFilter": {"sqlExpression": "1=1", "compatibilityLevel": 20},
    }  # fmt: skip

    assert {each.property for each in read(json.dumps(form), "r.json").findings} == {
        "Subscription", "Topic"
    }  # fmt: skip


@pytest.mark.parametrize(
    "queue",
    [
        {"Name": "a", "Properties": {"MaxDeliveryCount": 3, "maxDeliveryCount": 9}},
        {"Name": "a", "Properties": {"MaxDeliveryCount": 3}, "properties": {}},
    ],
)
def test_a_key_twice_in_two_cases_is_refused(queue: dict[str, object]) -> None:
    """The reader cannot know which of the two values is meant."""
    config = {"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [queue], "Topics": []}]}}
    with pytest.raises(ReadError) as caught:
        read(json.dumps(config), "Config.json")
    assert "case does not count" in str(caught.value)


def test_an_empty_file_is_said_to_be_empty() -> None:
    """This holds for each format."""
    for form in (None, "arm", "atom"):
        with pytest.raises(ReadError) as caught:
            read("\ufeff \r\n", "template.json", form=form)
        assert "template.json: It is empty." in str(caught.value)
