"""Parameters of ARM templates: what Azure refuses before it deploys, and inputs read in part."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policies.errors import ReadError
from policies.readers import read

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
BASE = "Microsoft.ServiceBus/namespaces"


def template(*resources: Any, **parameters: Any) -> str:
    """Return a template with these resources and parameters."""
    return json.dumps({"$schema": SCHEMA, "parameters": parameters, "resources": resources})


def queue(name: str, **properties: Any) -> dict[str, Any]:
    """Return the resource of a queue."""
    return {"type": f"{BASE}/queues", "name": name, "properties": properties}


def refused(text: str, **parameters: Any) -> str:
    """Return the words with which a template is refused."""
    with pytest.raises(ReadError) as caught:
        read(text, "t.json", parameters=parameters)
    return str(caught.value)


def test_every_required_parameter_without_a_value_is_named() -> None:
    """A template as of Azure's quickstarts: the namespace's and the queue's name are asked for."""
    text = template(
        queue("[format('{0}/{1}', parameters('serviceBusNamespaceName'), parameters('queue'))]"),
        serviceBusNamespaceName={"type": "string"},
        queue={"type": "string"},
        location={"type": "string", "defaultValue": "[resourceGroup().location]"},
        note={"type": "string", "nullable": True},
    )

    said = refused(text)
    assert "The parameter 'serviceBusNamespaceName' has no value." in said
    assert "The parameter 'queue' has no value. Give one with --parameter NAME=VALUE" in said
    assert "location" not in said
    assert "note" not in said

    reading = read(
        text, "t.json", parameters={"SERVICEBUSNAMESPACENAME": "shop", "queue": "orders"}
    )
    assert [each.name for each in reading.namespace.queues] == ["orders"]
    assert not reading.gaps


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        ({"type": "string", "allowedValues": ["Standard", "Premium"]}, "Gold",
         "The parameter 'p' is 'Gold'; the template allows Standard, Premium."),
        ({"type": "int", "allowedValues": [1, 2]}, 3, "the template allows 1, 2."),
        ({"type": "array", "allowedValues": ["a", "b"]}, ["a", "c"], "the template allows a, b."),
        ({"type": "string", "minLength": 6}, "shop", "takes no less than 6 characters."),
        ({"type": "string", "maxLength": 3}, "shop", "takes no more than 3 characters."),
        ({"type": "array", "minLength": 1}, [], "takes no less than 1 elements."),
        ({"type": "int", "minValue": 1}, 0, "takes no less than 1."),
        ({"type": "int", "maxValue": 10}, 11, "takes no more than 10."),
    ],
)  # fmt: skip
def test_a_parameter_outside_its_constraints_is_refused(
    declared: dict[str, Any], value: Any, message: str
) -> None:
    """Given by hand, or the template's own default."""
    assert message in refused(template(p=declared), p=value)
    assert message.split(";")[-1].strip() in refused(template(p=declared | {"defaultValue": value}))


def test_a_parameter_within_its_constraints_is_taken() -> None:
    """Case of an allowed value does not matter, as at Azure; a secret is never shown."""
    text = template(
        tier={"type": "string", "allowedValues": ["Standard", "Premium"], "maxLength": 8},
        names={"type": "array", "allowedValues": ["a", "b", "c"]},
        count={"type": "int", "minValue": 1, "maxValue": 10},
        key={"type": "secureString", "minLength": 4},
        hash={"type": "string", "defaultValue": "[uniqueString('x')]", "minLength": 500},
    )
    given = {"tier": "premium", "names": ["a", "c"], "count": 10}

    assert read(text, "t.json", parameters={**given, "key": "abcd"}).findings == ()

    said = refused(text, **given, key="abc")
    assert "The parameter 'key' is a secret; the template takes no less than 4" in said
    assert "abc" not in said


def test_parameters_of_a_nested_deployment_are_checked_too() -> None:
    """Azure refuses the deployment that lacks one."""
    inner = {
        "type": "Microsoft.Resources/deployments",
        "name": "inner",
        "properties": {
            "expressionEvaluationOptions": {"scope": "inner"},
            "template": json.loads(template(queue("ns/q"), lock={"type": "string"})),
        },
    }

    assert "The parameter 'lock' has no value." in refused(template(inner))


def test_what_could_not_be_read_is_known_to_be_left_out() -> None:
    """Such an input names entities that the reading lacks: nothing may be deleted for it."""
    unknown_name = queue("[concat('ns/', uniqueString('x'))]")
    unknown_loop = queue("ns/q") | {"copy": {"name": "x", "count": "[length(listKeys('x', '1'))]"}}
    linked = {
        "type": "Microsoft.Resources/deployments",
        "name": "linked",
        "properties": {"templateLink": {"uri": "https://example.org/more.json"}},
    }

    for resource in (unknown_name, unknown_loop, linked):
        reading = read(template(queue("ns/known"), resource), "t.json")
        assert reading.gaps
        assert set(reading.left_out) <= set(reading.findings)
        assert [each.name for each in reading.namespace.queues] == ["known"]


def test_a_plan_of_terraform_with_a_name_that_is_not_known_is_partial() -> None:
    """And so is an export of one vhost of a broker with the bridge, which lacks definitions."""
    plan = {
        "format_version": "1.2",
        "planned_values": {
            "root_module": {
                "resources": [
                    {
                        "address": "azurerm_servicebus_queue.q",
                        "type": "azurerm_servicebus_queue",
                        "name": "q",
                        "values": {"name": None},
                    }
                ]
            }
        },
    }
    queues = [{"name": name, "durable": True, "arguments": {}} for name in ("a", "a/$inbox")]
    export = {"rabbitmq_version": "4.0.5", "queues": queues, "exchanges": []}

    assert read(json.dumps(plan), "plan.json").gaps
    assert read(json.dumps(export), "d.json").gaps


def test_a_property_that_is_not_known_leaves_no_entity_out() -> None:
    """A finding about a value is none about what there is."""
    text = template(queue("ns/q", maxDeliveryCount="[length(utcNow())]"))
    one = {
        "id": "/x/providers/Microsoft.ServiceBus/namespaces/ns/queues/q",
        "shiny": 1,
    }

    for reading in (read(text, "t.json"), read(json.dumps(one), "q.json")):
        assert reading.findings
        assert not reading.left_out
