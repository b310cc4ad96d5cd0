"""Output of az and Terraform."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from bridge.model import entity as model
from bridge.model.duration import MAX_MS
from policies.errors import ReadError
from policies.readers import read

GOLDEN = Path(__file__).parent / "golden"
ID = "/subscriptions/0/resourceGroups/rg/providers/Microsoft.ServiceBus/namespaces/ns"


def test_a_single_object_of_az_show_is_read() -> None:
    """With properties at the top, or below `properties` as REST has them."""
    flat = {"id": f"{ID}/queues/q", "name": "q", "lockDuration": "PT30S", "messageCount": 4}
    rest = {"id": f"{ID}/queues/q", "name": "q", "properties": {"lockDuration": "PT30S"}}

    for form in (flat, rest, {"value": [rest]}, [[flat]]):
        namespace = read(json.dumps(form), "q.json").namespace
        assert (model.Queue(name="q", lock_duration_ms=30_000),) == namespace.queues
        assert namespace.name == "ns"


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("P14D", 14 * 86_400_000),
        ("14 days, 0:00:00", 14 * 86_400_000),
        ("1 day, 1:02:03.5", 90_123_500),
        ("0:05:00", 300_000),
        ("10675199 days, 2:48:05.477581", MAX_MS),
        ("P10675199DT2H48M5.477581S", MAX_MS),
        ("10675199.02:48:05", MAX_MS),
    ],
)
def test_durations_of_old_and_new_az_are_read(text: str, duration_ms: int) -> None:
    """az before 2.49 printed Python's timedelta."""
    form = {"id": f"{ID}/queues/q", "defaultMessageTimeToLive": text}

    queue = read(json.dumps(form), "q.json").namespace.queues[0]

    assert duration_ms == queue.default_message_time_to_live_ms


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ([{"id": f"{ID}/queues/q"}, {"name": "x"}], "$[1]: This is no entity of Service Bus: it "
         "has no id of one. Remove it, or list entities with 'az servicebus queue list -o json'."),
        ([{"id": f"{ID}/queues/q"}, {"id": f"{ID}2/queues/q"}], "The input has 2 namespaces: "
         "'ns', 'ns2'. Say which one with --namespace NAME"),
        ({"id": f"{ID}/queues/q", "maxDeliveryCount": 0}, "$.maxDeliveryCount: Queue 'q': "
         "MaxDeliveryCount is 0; Service Bus takes 1 to 2147483647."),
    ],
)  # fmt: skip
def test_bad_lists_are_refused(form: Any, message: str) -> None:
    """With path and remedy."""
    with pytest.raises(ReadError) as caught:
        read(json.dumps(form), "q.json")

    assert message in str(caught.value)


def test_lists_say_what_they_lack() -> None:
    """Rules and topics are lists of their own; networks are nothing for RabbitMQ."""
    form = [
        {"id": f"{ID}/topics/t/subscriptions/s"},
        {"id": f"{ID}/networkRuleSets/default"},
        {"id": f"{ID}/queues/q/authorizationRules/r", "rights": ["Send"]},
    ]

    reading = read(json.dumps(form), "q.json")

    assert [each.property for each in reading.findings] == [
        "namespaces/networkrulesets",
        "AuthorizationRules",
        "Rules",
        "Topic",
    ]


def test_access_rules_in_a_file_of_their_own_are_left_out_with_what_to_do() -> None:
    """Beside the queue in one file, and with a key, they are taken whole."""
    queues = [{"id": f"{ID}/queues/q"}]
    access = [{"id": f"{ID}/queues/q/authorizationRules/r", "rights": ["Send"]}]

    apart = read(json.dumps(access), "access.json")
    together = read(json.dumps([queues, access]), "all.json")
    access[0]["primaryKey"] = "key"
    whole = read(json.dumps([queues, access]), "all.json")

    assert "Have both in one; of what az printed 'jq -s . queues" in apart.findings[0].message
    assert "add it as primaryKey, or give the rule to 'busb" in together.findings[0].message
    assert not whole.findings
    assert whole.namespace.queues[0].authorization_rules[0].primary_key == "key"


def plan() -> dict[str, Any]:
    """Return the golden plan, to change it."""
    return copy.deepcopy(json.loads((GOLDEN / "plan.json").read_text()))


def child(document: dict[str, Any]) -> dict[str, Any]:
    """Return the module of a plan."""
    module: dict[str, Any] = document["planned_values"]["root_module"]["child_modules"][0]
    return module


def test_a_topic_that_a_module_is_given_is_found() -> None:
    """`var.topic_id` of a module is the argument of its call."""
    document = plan()
    module = child(document)
    topic = next(r for r in module["resources"] if r["type"] == "azurerm_servicebus_topic")
    module["resources"].remove(topic)
    topic["address"] = "azurerm_servicebus_topic.this"
    document["planned_values"]["root_module"]["resources"].append(topic)
    call = document["configuration"]["root_module"]["module_calls"]["events"]
    call["expressions"]["topic_id"] = {"references": ["azurerm_servicebus_topic.this.id"]}
    subscription = call["module"]["resources"][0]
    subscription["expressions"]["topic_id"] = {"references": ["var.topic_id"]}

    reading = read(json.dumps(document), "plan.json")

    assert [s.name for s in reading.namespace.topics[0].subscriptions] == ["audit", "billing"]


def test_what_is_known_only_after_apply_is_said() -> None:
    """An unknown name leaves the entity out, an unknown property has Azure's default."""
    document = plan()
    root = document["planned_values"]["root_module"]["resources"]
    del root[1]["values"]["name"]
    del root[2]["values"]["max_delivery_count"]
    change = {"after_unknown": {"max_delivery_count": True}}
    document["resource_changes"].append({"address": root[2]["address"], "change": change})

    reading = read(json.dumps(document), "plan.json")

    assert [q.name for q in reading.namespace.queues][1:] == ["errors", "archive/2024"]
    messages = [each.message for each in reading.findings]
    assert any("its name is not known before it is applied. Read the state" in m for m in messages)
    assert any("Queue 'invoices': max_delivery_count is not known" in m for m in messages)


def test_a_reference_that_leads_nowhere_is_said() -> None:
    """The subscription is left out, by its address."""
    document = plan()
    call = document["configuration"]["root_module"]["module_calls"]["events"]
    call["module"]["resources"][0]["expressions"]["topic_id"] = {"references": ["data.x.y.id"]}

    reading = read(json.dumps(document), "plan.json")

    assert (
        'module.events.azurerm_servicebus_subscription.this["audit"] is left out: its topic is '
        "not in the input."
    ) in reading.findings[0].message


@pytest.mark.parametrize(
    ("index", "topics"),
    [
        (["each.key"], {"audit": [], "orders": ["orders"]}),
        (["each.value"], {"audit": [], "orders": ["orders"]}),
        (["each.value.topic", "each.value"], {"audit": [], "orders": []}),
    ],
)
def test_an_instance_is_found_by_its_key_and_never_by_a_value(
    index: list[str], topics: dict[str, list[str]]
) -> None:
    """A subscription is on no other topic than its own for having that one's key."""

    def instance(kind: str, key: str) -> dict[str, Any]:
        found = resource(kind, {"name": key})
        return found | {"address": f'{found["type"]}.x["{key}"]', "index": key}

    resources = [instance("topic", key) for key in topics] + [instance("subscription", "orders")]
    configured = {
        "type": "azurerm_servicebus_subscription",
        "name": "x",
        "expressions": {"topic_id": {"references": ["azurerm_servicebus_topic.x", *index]}},
    }
    document = json.loads(state(resources)) | {
        "configuration": {"root_module": {"resources": [configured]}}
    }

    reading = read(json.dumps(document), "plan.json")

    found = {t.name: [s.name for s in t.subscriptions] for t in reading.namespace.topics}
    assert found == topics
    is_lost = any("its topic is not in the input" in each.message for each in reading.findings)
    assert is_lost is not any(topics.values())


@pytest.mark.parametrize(("written", "name"), [("t", "t"), ("a~t", "a/t"), ("a/t", "a/t")])
def test_names_of_old_provider_versions_are_read(written: str, name: str) -> None:
    """`enable_...`, and entities by name instead of id; a slash as it is, or as Azure's `~`."""
    resources = [
        resource("topic", {"name": written, "enable_partitioning": True, "namespace_name": "ns"}),
        resource("subscription", {"name": "s", "topic_name": written, "max_delivery_count": 1}),
        resource(
            "subscription_rule",
            {
                "name": "r",
                "topic_name": written,
                "subscription_name": "s",
                "filter_type": "SqlFilter",
                "sql_filter": "a = 1",
            },
        ),
        resource("topic_authorization_rule", {"name": "k", "topic_name": written, "send": True}),
        resource("namespace_network_rule_set", {"name": "n"}),
    ]

    reading = read(state(resources), "state.json")

    (topic,) = reading.namespace.topics
    assert topic.name == name
    assert topic.enable_partitioning
    assert [rule.name for rule in topic.subscriptions[0].rules] == ["r"]
    assert {model.Right.SEND} == topic.authorization_rules[0].rights
    assert [each.property for each in reading.findings] == [
        "AuthorizationRules",
        "azurerm_servicebus_namespace_network_rule_set",
    ]


def resource(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return a resource of a state."""
    kind = f"azurerm_servicebus_{kind}"
    address = f"{kind}.{values['name']}"
    return {"address": address, "mode": "managed", "type": kind, "name": "x", "values": values}


def state(resources: list[dict[str, Any]]) -> str:
    """Return a state."""
    return json.dumps(
        {"format_version": "1.0", "values": {"root_module": {"resources": resources}}}
    )


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ([resource("queue", {"name": "q", "lock_duration": "PT9M"})], "Queue 'q': LockDuration is "
         "PT9M; Service Bus takes PT5S to PT5M."),
        ([resource("namespace", {"name": "a"}), resource("namespace", {"name": "b"})],
         "The input has 2 namespaces: 'a', 'b'. Say which one with --namespace NAME"),
        ([resource("queue", {"name": "q"}),
          resource("queue_authorization_rule", {"name": "r", "queue_name": "q"})],
         "Entity 'q', authorization rule 'r': its rights are []; it is a list of Send, Listen, "
         "Manage."),
    ],
)  # fmt: skip
def test_a_bad_state_is_refused(resources: Any, message: str) -> None:
    """With path and remedy."""
    with pytest.raises(ReadError) as caught:
        read(state(resources), "state.json")

    assert message in str(caught.value)
