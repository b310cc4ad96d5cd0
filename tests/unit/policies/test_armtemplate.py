"""ARM templates: expressions, loops, and what only Azure knows."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model import entity as model
from policies.errors import ReadError
from policies.readers import armtemplate, jsontext, read
from policies.readers.arm import expression
from policies.readers.arm.evaluation import Scope
from policies.readers.arm.unresolved import is_unresolved, reason
from policies.readers.reading import Reading
from tests.fixtures.examples import examples

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
QUEUES = "Microsoft.ServiceBus/namespaces/queues"


def template(resources: Any, **more: Any) -> str:
    """Return a template with these resources."""
    return json.dumps({"$schema": SCHEMA, "resources": resources, **more}, indent=1)


def queue(name: str = "ns/q", **properties: Any) -> dict[str, Any]:
    """Return the resource of a queue."""
    return {"type": QUEUES, "name": name, "properties": properties}


def names(reading: Reading) -> list[str]:
    """Return the names of the queues."""
    return [each.name for each in reading.namespace.queues]


def evaluated(text: str, **declared: Any) -> Any:
    """Return the value of an expression."""
    return Scope(jsontext.parse(json.dumps(declared), "x")).text(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("[[not an expression]", "[not an expression]"),
        ("[concat('a', 'b', string(1))]", "ab1"),
        ("[concat(createArray(1), createArray(2, 3))]", [1, 2, 3]),
        ("['it''s']", "it's"),
        ("[format('{0}/{1}-{0} {{x}}', 'a', 7)]", "a/7-a {x}"),
        ("[format('{0:D3}', 7)]", "007"),
        ("[toLower('ABC')]", "abc"),
        ("[TOUPPER('abc')]", "ABC"),
        ("[replace('a-b-c', '-', '')]", "abc"),
        ("[if(equals(1, 1), 'yes', parameters('absent'))]", "yes"),
        ("[if(and(true(), or(false(), not(true()))), 1, 2)]", 2),
        ("[length('four')]", 4),
        ("[length(createArray(1, 2))]", 2),
        ("[empty('')]", True),
        ("[contains('abc', 'b')]", True),
        ("[contains(createObject('Key', 1), 'key')]", True),
        ("[createObject('a', createArray(1, 2)).a[1]]", 2),
        ("[createObject('a', 1).?b]", None),
        ("[createObject('a', 1)[?'a']]", 1),
        ("[coalesce(null(), tryGet(createObject('a', 1), 'b'), 'c')]", "c"),
        ("[first(split('a,b;c', createArray(',', ';')))]", "a"),
        ("[last('abc')]", "c"),
        ("[take(skip('abcdef', 2), 2)]", "cd"),
        ("[substring('abcdef', 1, 3)]", "bcd"),
        ("[join(createArray('a', 'b'), '-')]", "a-b"),
        ("[div(-7, 2)]", -3),
        ("[mod(7, 3)]", 1),
        ("[max(createArray(1, 5, 2))]", 5),
        ("[min(3, 2)]", 2),
        ("[range(2, 3)]", [2, 3, 4]),
        ("[union(createObject('a', 1), createObject('b', 2))]", {"a": 1, "b": 2}),
        ("[intersection(createArray(1, 2), createArray(2, 3))]", [2]),
        ("[json('{\"a\": [1]}').a[0]]", 1),
        ("[bool('True')]", True),
        ("[int('12')]", 12),
        ("[padLeft('7', 3, '0')]", "007"),
        ("[startsWith('abc', 'AB')]", True),
        ("[map(range(0, 3), lambda('i', mul(lambdaVariables('i'), 2)))]", [0, 2, 4]),
        ("[filter(createArray(1, 5), lambda('i', greater(lambdaVariables('i'), 2)))]", [5]),
        ("[reduce(range(1, 4), 0, lambda('a', 'b', add(lambdaVariables('a'), "
         "lambdaVariables('b'))))]", 10),
        ("[toObject(createArray('a'), lambda('k', lambdaVariables('k')), lambda('k', 1))]",
         {"a": 1}),
        ("[items(createObject('b', 2, 'a', 1))[0].key]", "a"),
        ("[last(split(resourceId('Microsoft.ServiceBus/namespaces/queues', 'n', 'q'), '/'))]", "q"),
        ("[base64ToString(base64('x'))]", "x"),
    ],
)  # fmt: skip
def test_functions_do_what_azure_documents(text: str, value: Any) -> None:
    """Each function with the values of its documentation or like them."""
    found = evaluated(text)

    assert value == found
    assert isinstance(value, bool) == isinstance(found, bool)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[uniqueString('x')]", "uniquestring() is a hash of Azure's own making"),
        ("[concat('a', resourceGroup().location)]", "resourcegroup() is the resource group"),
        ("[parameters('p')]", "the parameter 'p' has no value"),
        ("[parameters('q')]", "the template has no parameter 'q'"),
        ("[variables('v')]", "the template has no variable 'v'"),
        ("[variables('loop')]", "the variable 'loop' refers to itself"),
        ("[listKeys('x', '2021').key]", "listkeys() is the keys of a resource"),
        ("[magic(1)]", "the function magic() is not known here"),
        ("[my.own(1)]", "my.own() is known to Azure alone"),
        ("[concat('a']", "[concat('a']: it ends too early"),
        ("[concat(a)]", "[concat(a)]: 'a' is no call; texts stand in single quotes"),
        ("[1 + 1]", "[1 + 1]: unexpected '+ 1'"),
        ("[createArray(1)[5]]", "[createArray(1)[5]]: there is no member 5"),
        ("[int('x')]", "[int('x')]: int() is called wrongly: invalid literal for int() with base "
         "10: 'x'"),
        ("[copyIndex()]", "[copyIndex()]: copyIndex() outside of its loop"),
        ("[equals(uniqueString('a'), 'b')]", "uniquestring() is a hash of Azure's own making"),
        ("[if(equals(uniqueString('a'), 'b'), 1, 2)]", "uniquestring() is a hash of Azure's own "
         "making"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_says_why(text: str, why: str) -> None:
    """A value that only Azure knows, or that is malformed, carries its reason."""
    value = evaluated(
        text, parameters={"p": {"type": "string"}}, variables={"loop": "[variables('loop')]"}
    )

    assert is_unresolved(value)
    assert why == reason(value)


@settings(max_examples=examples(300))
@given(st.text("[]()'.,?ab1 {}-", max_size=30))
def test_no_text_breaks_the_expression_parser(text: str) -> None:
    """Any text in brackets is an expression or is refused as none."""
    with suppress(expression.BadExpression):
        expression.parse(f"[{text}]")


def test_parameters_come_from_the_file_then_from_defaults() -> None:
    """Names are not case-sensitive; a null value leaves Azure's default."""
    text = template(
        [
            queue(
                "[concat(parameters('NS'), '/', parameters('name'))]",
                maxDeliveryCount="[parameters('count')]",
                lockDuration="[parameters('lock')]",
            )
        ],
        parameters={
            "ns": {"type": "string", "defaultValue": "contoso"},
            "name": {"type": "string"},
            "count": {"type": "int", "defaultValue": 3},
            "lock": {"type": "string", "nullable": True},
        },
    )

    reading = read(text, "t.json", parameters={"Name": "orders", "count": 7})

    assert (model.Queue(name="orders", max_delivery_count=7),) == reading.namespace.queues
    assert reading.findings == ()


def test_a_parameter_file_is_read() -> None:
    """Values are taken, secrets of a key vault are not known."""
    text = json.dumps({"parameters": {"a": {"value": [1]}, "b": {"reference": {"keyVault": {}}}}})

    found = armtemplate.read_parameters(text, "p.json")

    assert found["a"] == [1]
    assert reason(found["b"]) == "the parameter 'b' is a secret in a key vault"


def test_an_unknown_parameter_in_the_file_is_refused() -> None:
    """Azure refuses it as well."""
    with pytest.raises(ReadError, match="The template has no parameter 'typo'"):
        read(template([]), "t.json", parameters={"typo": 1})


def test_an_unknown_namespace_name_does_not_hide_its_entities() -> None:
    """`contoso-<hash>/orders` is the queue `orders`."""
    name = "[format('{0}/{1}', concat('contoso-', uniqueString(resourceGroup().id)), 'orders')]"

    reading = read(template([queue(name)]), "t.json")

    assert names(reading) == ["orders"]


def test_an_unknown_entity_name_is_a_finding_with_its_place() -> None:
    """The entity is left out, and line and path say which."""
    reading = read(
        template([queue("[concat('ns/', uniqueString('x'))]"), queue("ns/known")]), "t.json"
    )

    assert names(reading) == ["known"]
    assert [each.message for each in reading.findings] == [
        "t.json: line 4, $.resources[0]: A resource of the type namespaces/queues is left out: a "
        "part of its name is not known: uniquestring() is a hash of Azure's own making."
    ]


def test_an_unknown_property_is_a_finding_and_has_azures_default() -> None:
    """The path is that of the property."""
    reading = read(
        template(
            [queue(maxDeliveryCount="[parameters('max')]")],
            parameters={"max": {"type": "int", "defaultValue": "[length(utcNow())]"}},
        ),
        "t.json",
    )

    assert reading.namespace.queues[0].max_delivery_count == 10
    assert [each.message for each in reading.findings] == [
        "t.json: line 8, $.resources[0].properties.maxDeliveryCount: Queue 'q': MaxDeliveryCount "
        "is not known: utcnow() is the time of the deployment. Azure's default is taken."
    ]


def test_a_wrong_value_is_a_fault_with_the_place_of_its_expression() -> None:
    """A parameter that Service Bus would refuse is refused, wherever it came from."""
    text = template(
        [queue(lockDuration="[parameters('lock')]")],
        parameters={"lock": {"type": "string", "defaultValue": "PT1H"}},
    )

    with pytest.raises(ReadError) as caught:
        read(text, "t.json")

    assert str(caught.value) == (
        "t.json: line 8, $.resources[0].properties.lockDuration: Queue 'q': LockDuration is PT1H; "
        "Service Bus takes PT5S to PT5M."
    )


def test_loops_of_resources_properties_and_variables_are_unrolled() -> None:
    """copyIndex with a name, with an offset and without; nested objects of an array."""
    resource = queue(
        "[concat('ns/', variables('prefixes')[copyIndex('each')], copyIndex('each', 1))]",
        maxDeliveryCount="[add(copyIndex(), 1)]",
    ) | {"copy": {"name": "each", "count": 3}}
    rights = {"name": "rights", "count": 2, "input": "[variables('all')[copyIndex('rights')]]"}
    access = {
        "type": "Microsoft.ServiceBus/namespaces/authorizationRules",
        "name": "ns/app",
        "properties": {"copy": [rights]},
    }
    variables = {
        "all": ["Send", "Listen"],
        "copy": [
            {"name": "prefixes", "count": 3, "input": "[concat('q', copyIndex('prefixes'), '-')]"}
        ],
    }

    reading = read(template([resource, access], variables=variables), "t.json")

    assert names(reading) == ["q0-1", "q1-2", "q2-3"]
    assert [each.max_delivery_count for each in reading.namespace.queues] == [1, 2, 3]
    (rule,) = reading.namespace.authorization_rules
    assert {model.Right.SEND, model.Right.LISTEN} == rule.rights
    assert "its keys are not in the input" in reading.findings[0].message


def test_copy_index_without_a_name_is_of_the_resource_in_a_loop_of_properties_too() -> None:
    """Bicep writes it so for modules in a loop that are given a list made by a loop."""
    names_of_each = {
        "name": "value",
        "count": 2,
        "input": "[format('ns/{0}-{1}', copyIndex(), copyIndex('value'))]",
    }
    queues = queue("[parameters('names')[copyIndex()]]") | {
        "copy": {"name": "queues", "count": "[length(parameters('names'))]"}
    }
    module = {
        "type": "Microsoft.Resources/deployments",
        "name": "[format('module-{0}', copyIndex())]",
        "copy": {"name": "modules", "count": 2},
        "properties": {
            "expressionEvaluationOptions": {"scope": "inner"},
            "parameters": {"names": {"copy": [names_of_each]}},
            "template": {"parameters": {"names": {"type": "array"}}, "resources": [queues]},
        },
    }

    reading = read(template([module]), "t.json")

    assert names(reading) == ["0-0", "0-1", "1-0", "1-1"]


def test_a_loop_of_unknown_length_is_a_finding() -> None:
    """Nothing of it is taken."""
    resource = queue() | {"copy": {"name": "x", "count": "[length(listKeys('x', '1'))]"}}

    reading = read(template([resource]), "t.json")

    assert names(reading) == []
    assert "A loop is left out: listkeys() is the keys of a" in reading.findings[0].message


def test_conditions_decide_and_unknown_ones_are_findings() -> None:
    """A resource that is not deployed is left out; one that may be deployed is there."""
    off = queue("ns/off") | {"condition": "[equals('a', 'b')]"}
    perhaps = queue("ns/perhaps") | {"condition": "[equals(deployment().name, 'b')]"}

    reading = read(template([off, perhaps]), "t.json")

    assert names(reading) == ["perhaps"]
    assert [each.grade for each in reading.findings] == ["approximate"]


def nested(scope: str, name: str) -> dict[str, Any]:
    """Return a nested deployment with a queue."""
    return {
        "type": "Microsoft.Resources/deployments",
        "name": "inner",
        "properties": {
            "expressionEvaluationOptions": {"scope": scope},
            "parameters": {"name": {"value": "[concat('from-', parameters('name'))]"}},
            "template": {
                "parameters": {"name": {"type": "string"}},
                "resources": [queue(name)],
                "outputs": {"made": {"type": "string", "value": "[parameters('name')]"}},
            },
        },
    }


@pytest.mark.parametrize(("scope", "found"), [("inner", "from-outer"), ("outer", "outer")])
def test_a_nested_deployment_is_entered_in_its_scope(scope: str, found: str) -> None:
    """Inner scope sees the parameters that are passed, outer scope those around it."""
    text = template(
        [nested(scope, "[concat('ns/', parameters('name'))]")],
        parameters={"name": {"type": "string", "defaultValue": "outer"}},
    )

    assert [found] == names(read(text, "t.json"))


def test_outputs_of_a_nested_deployment_can_be_used() -> None:
    """As Bicep does it with the outputs of a module."""
    text = template(
        [
            nested("inner", "ns/inner"),
            queue("[concat('ns/', reference('inner', '2022-09-01').outputs.made.value)]"),
        ],
        parameters={"name": {"type": "string", "defaultValue": "outer"}},
    )

    assert names(read(text, "t.json")) == ["inner", "from-outer"]


def test_a_linked_template_is_a_finding() -> None:
    """It is in another file."""
    link = {
        "type": "Microsoft.Resources/deployments",
        "name": "linked",
        "properties": {"templateLink": {"uri": "https://example.com/t.json"}},
    }

    reading = read(template([link]), "t.json")

    assert "A linked template is left out" in reading.findings[0].message


def test_two_namespaces_are_refused() -> None:
    """A vhost is one namespace."""
    with pytest.raises(ReadError, match="The input has 2 namespaces: 'a', 'b'"):
        read(template([queue("a/q"), queue("b/q")]), "t.json")


def test_a_namespace_whose_name_is_not_known_is_shown_as_it_is_written() -> None:
    """Beside one that is known."""
    name = "[format('{0}/b', concat('x-', uniqueString(resourceGroup().id)))]"

    with pytest.raises(ReadError) as caught:
        read(template([queue("shop/a"), queue(name)]), "t.json")

    assert f"The input has 2 namespaces: 'shop', {name}. Say which" in str(caught.value)


def test_a_part_of_a_name_that_is_not_known_is_in_no_finding() -> None:
    """Of a resource that is of no use here either."""
    odd = {"type": f"{QUEUES}/odd", "name": "[format('ns/{0}/x', uniqueString('x'))]"}

    (finding,) = read(template([odd]), "t.json").findings

    assert (finding.entity, finding.property) == ("", "namespaces/queues/odd")


def test_a_name_of_too_few_parts_is_a_finding() -> None:
    """Azure refuses such a template."""
    reading = read(template([queue("orders")]), "t.json")

    assert "its name 'orders' has 1 parts, its type 2." in reading.findings[0].message


def test_a_subscription_without_its_topic_is_taken_and_said() -> None:
    """The topic may be made elsewhere."""
    resource = {
        "type": "Microsoft.ServiceBus/namespaces/topics/subscriptions",
        "name": "ns/events/audit",
        "properties": {"isClientAffine": True, "shiny": 1},
    }

    reading = read(template([resource]), "t.json")

    assert reading.namespace.topics[0].subscriptions[0].name == "audit"
    assert [each.property for each in reading.findings] == ["isClientAffine", "shiny", "Topic"]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"filterType": "Odd"}, "filterType is 'Odd'. It is SqlFilter or CorrelationFilter."),
        ({"filterType": "SqlFilter"}, "rule 'r' has no filter."),
        ({"filterType": "CorrelationFilter", "correlationFilter": {}}, "is empty."),
        ({"sqlFilter": "a = 1"}, "this is a string. It must be an object."),
        ({"sqlFilter": {"sqlExpression": "a = 1"}, "action": "SET a = 2"}, "this is a string."),
        (
            {"correlationFilter": {"label": 5, "to": "x"}},
            "properties.correlationFilter.label: Subscription 't/Subscriptions/s', rule 'r': this "
            "is a number. It must be a string.",
        ),
        ({"correlationFilter": {"to": "x", "properties": ["a"]}}, "this is an array."),
    ],
)
def test_a_bad_rule_is_refused(properties: Any, message: str) -> None:
    """With the subscription's and the rule's name."""
    base = "Microsoft.ServiceBus/namespaces/topics"
    resources = [
        {"type": base, "name": "ns/t"},
        {"type": f"{base}/subscriptions", "name": "ns/t/s"},
        {"type": f"{base}/subscriptions/rules", "name": "ns/t/s/r", "properties": properties},
    ]

    with pytest.raises(ReadError) as caught:
        read(template(resources), "t.json")

    assert "Subscription 't/Subscriptions/s', rule 'r'" in str(caught.value)
    assert message in str(caught.value)


def test_manage_without_the_other_rights_is_refused() -> None:
    """As Azure does."""
    rule = {
        "type": "Microsoft.ServiceBus/namespaces/authorizationRules",
        "name": "ns/r",
        "properties": {"rights": ["Manage"]},
    }

    with pytest.raises(ReadError, match="Rule 'r': Manage needs Send and Listen beside it"):
        read(template([rule]), "t.json")


def test_what_else_the_namespace_has_is_said() -> None:
    """The tier is taken; networks, identities and the like are no entities."""
    resources = [
        {
            "type": "Microsoft.ServiceBus/namespaces",
            "name": "ns",
            "sku": {"name": "Premium", "capacity": 2},
            "properties": {"disableLocalAuth": True, "zoneRedundant": False},
        },
        {"type": "Microsoft.ServiceBus/namespaces/networkRuleSets", "name": "ns/default"},
    ]

    reading = read(template(resources), "t.json")

    assert (reading.namespace.name, reading.namespace.tier) == ("ns", model.Tier.PREMIUM)
    assert [each.property for each in reading.findings] == [
        "disableLocalAuth",
        "namespaces/networkrulesets",
    ]


def verified_module() -> dict[str, Any]:
    """Return the shape of Microsoft's verified Bicep module for a topic, built."""
    return {
        "type": "Microsoft.Resources/deployments",
        "name": "[format('{0}-topic-{1}', deployment().name, copyIndex())]",
        "copy": {
            "name": "topics",
            "count": "[length(coalesce(parameters('topics'), createArray()))]",
        },
        "properties": {
            "expressionEvaluationOptions": {"scope": "inner"},
            "parameters": {
                "namespaceName": {"value": "[parameters('name')]"},
                "name": {"value": "[parameters('topics')[copyIndex()].name]"},
                "ttl": {"value": "[tryGet(parameters('topics')[copyIndex()], 'ttl')]"},
                "rights": "[if(contains(parameters('topics')[copyIndex()], 'rights'), "
                "createObject('value', parameters('topics')[copyIndex()].rights), "
                "createObject('value', createArray('Send')))]",
            },
            "template": {
                "languageVersion": "2.0",
                "parameters": {
                    "namespaceName": {"type": "string"},
                    "name": {"type": "string"},
                    "ttl": {"type": "string", "defaultValue": "P14D"},
                    "rights": {"type": "array", "defaultValue": []},
                },
                "resources": {
                    "namespace": {
                        "existing": True,
                        "type": "Microsoft.ServiceBus/namespaces",
                        "name": "[parameters('namespaceName')]",
                    },
                    "topic": {
                        "type": "Microsoft.ServiceBus/namespaces/topics",
                        "name": "[format('{0}/{1}', parameters('namespaceName'), "
                        "parameters('name'))]",
                        "properties": "[union(createObject('defaultMessageTimeToLive', "
                        "parameters('ttl')), if(equals(reference('namespace', '2022-10-01-preview',"
                        " 'full').sku.name, 'Premium'), createObject('maxMessageSizeInKilobytes', "
                        "2048), createObject()))]",
                    },
                    "topic_lock": {
                        "condition": "[not(empty(createObject()))]",
                        "type": "Microsoft.Authorization/locks",
                        "name": "lock",
                    },
                    "rule": {
                        "type": "Microsoft.ServiceBus/namespaces/topics/authorizationRules",
                        "name": "[format('{0}/{1}/app', parameters('namespaceName'), "
                        "parameters('name'))]",
                        "properties": {"rights": "[parameters('rights')]"},
                    },
                },
            },
        },
    }


@pytest.mark.parametrize(("sku", "size_kb"), [("Standard", None), ("Premium", 2048)])
def test_a_verified_bicep_module_is_read(sku: str, size_kb: int | None) -> None:
    """The tier of a namespace that the module only refers to is known, and so is the rest."""
    namespace = {
        "type": "Microsoft.ServiceBus/namespaces",
        "name": "[parameters('name')]",
        "sku": {"name": "[parameters('sku')]"},
    }
    text = template(
        {"namespace": namespace, "topics": verified_module()},
        languageVersion="2.0",
        parameters={
            "name": {"type": "string", "defaultValue": "contoso"},
            "sku": {"type": "string", "defaultValue": sku},
            "topics": {
                "type": "array",
                "nullable": True,
                "defaultValue": [{"name": "a"}, {"name": "b", "ttl": "P1D", "rights": ["Listen"]}],
            },
        },
    )

    reading = read(text, "t.json")

    first, second = reading.namespace.topics
    day_ms = 86_400_000
    assert (14 * day_ms, day_ms) == (
        first.default_message_time_to_live_ms,
        second.default_message_time_to_live_ms,
    )
    assert (size_kb, size_kb) == (first.max_message_size_kb, second.max_message_size_kb)
    assert [{model.Right.SEND}, {model.Right.LISTEN}] == [
        each.authorization_rules[0].rights for each in (first, second)
    ]
    assert {"AuthorizationRules"} == {each.property for each in reading.findings}


@pytest.mark.parametrize(
    ("referred", "size_kb"),
    [
        ("'large'", 2048),
        ("resourceId('Microsoft.ServiceBus/namespaces', 'LARGE')", 2048),
        ("'small'", None),
        ("resourceId('Microsoft.ServiceBus/namespaces', 'of-others')", None),
    ],
)
def test_of_two_namespaces_the_one_that_is_referred_to_is_read(
    referred: str, size_kb: int | None
) -> None:
    """And none for one that the template does not make."""
    resources = {
        name: {"type": "Microsoft.ServiceBus/namespaces", "name": name, "sku": {"name": sku}}
        for name, sku in (("small", "Standard"), ("large", "Premium"))
    } | {
        "queue": queue("large/q")
        | {
            "properties": f"[union(createObject('maxDeliveryCount', 3), if(equals(reference("
            f"{referred}, '2022-10-01-preview', 'full').sku.name, 'Premium'), "
            "createObject('maxMessageSizeInKilobytes', 2048), createObject()))]"
        }
    }

    reading = read(template(resources, languageVersion="2.0"), "t.json", namespace="large")

    (made,) = reading.namespace.queues
    assert (made.max_delivery_count, made.max_message_size_kb) == (3, size_kb)


def test_properties_of_which_a_part_is_not_known_are_taken_as_far_as_they_are() -> None:
    """A module read without the namespace around it."""
    resource = queue() | {
        "properties": "[union(createObject('maxDeliveryCount', 3), if(equals(reference('x').sku, "
        "'Premium'), createObject('enableExpress', true()), createObject()))]"
    }
    whole = queue("ns/r") | {"properties": "[reference('x')]"}

    reading = read(template([resource, whole]), "t.json")

    assert [each.max_delivery_count for each in reading.namespace.queues] == [3, 10]
    assert [each.message.split(": ", 2)[2] for each in reading.findings] == [
        "Queue 'q': some of its properties are not known: reference() is the state of a resource "
        "in Azure. Azure's defaults are taken for them.",
        "Queue 'r': its properties are not known: reference() is the state of a resource in "
        "Azure. Azure's defaults are taken for them.",
    ]


def test_parameters_of_a_command_line_have_the_declared_type() -> None:
    """A number that came as text is a number; null gives way to the default."""
    text = template(
        [queue("[concat('ns/', parameters('names')[0])]", maxDeliveryCount="[parameters('n')]")],
        parameters={"n": {"type": "int", "defaultValue": 4}, "names": {"type": "array"}},
    )

    given = {"names": '["q"]', "n": "7"}
    reading = read(text, "t.json", parameters=given)
    assert (model.Queue(name="q", max_delivery_count=7),) == reading.namespace.queues

    reading = read(text, "t.json", parameters=given | {"n": None})
    assert (model.Queue(name="q", max_delivery_count=4),) == reading.namespace.queues


def test_a_property_of_another_kind_of_entity_has_no_effect() -> None:
    """Old templates give subscriptions duplicate detection."""
    base = "Microsoft.ServiceBus/namespaces/topics"
    resources = [
        {"type": base, "name": "ns/t"},
        {
            "type": f"{base}/Subscriptions",
            "name": "ns/t/s",
            "properties": {"requiresDuplicateDetection": True},
        },
    ]

    reading = read(template(resources), "t.json")

    assert "a subscription has no requiresDuplicateDetection; it has no effect." in (
        reading.findings[0].message
    )
