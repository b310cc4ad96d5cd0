"""The administration API, as .NET's client asks it and reads its answers (see `dotnet`)."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient

from tests.acceptance.dotnet_client import (
    DEFAULT_RULE,
    SERVICE_BUS,
    TYPE,
    Dotnet,
    Refused,
    correlation,
    described,
    elements,
    listed,
    read,
    sql,
    value_of,
    written,
)
from tests.acceptance.sdk import unique
from tests.fixtures.bridge import Bridge

ENTITIES: dict[str, Any] = {}


@pytest.fixture
def dotnet(bridge: Bridge) -> Dotnet:
    """A client with the namespace's own key."""
    return Dotnet(bridge.port)


@pytest.fixture
def name(admin: ServiceBusAdministrationClient) -> Iterator[str]:
    """A name; what begins with it is deleted at the end."""
    chosen = unique("net")
    yield chosen
    for queue in admin.list_queues():
        if queue.name.startswith(chosen):
            admin.delete_queue(queue.name)
    for topic in admin.list_topics():
        if topic.name.startswith(chosen):
            admin.delete_topic(topic.name)


QUEUE = {
    "LockDuration": "PT45S",
    "MaxSizeInMegabytes": "1024",
    "RequiresDuplicateDetection": "false",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": "P2DT0.005S",
    "DeadLetteringOnMessageExpiration": "true",
    "MaxDeliveryCount": "7",
    "EnableBatchedOperations": "true",
    "IsAnonymousAccessible": "false",
    "AuthorizationRules": "",
    "Status": "Active",
    "ForwardTo": "",
    "UserMetadata": "who &amp; why",
    "EnablePartitioning": "false",
    "EnableExpress": "false",
}


def test_a_queue_lives_as_dotnet_wants_it(dotnet: Dotnet, bridge: Bridge, name: str) -> None:
    """Not there, made, there twice, read, changed, counted, listed, deleted."""
    assert not listed(dotnet.get(name), "QueueDescription")  # QueueExistsAsync: an empty feed
    target = f"{name}-target"
    dotnet.put(target, described("Queue", elements(**{**QUEUE, "UserMetadata": ""})))
    address = f"http://localhost/{target}"
    body = described("Queue", elements(**{**QUEUE, "ForwardTo": address}))
    title, made, _ = read(dotnet.put(name, body, forwards=True))
    assert (title, made["LockDuration"], made["MaxDeliveryCount"]) == (name, "PT45S", 7)
    assert made["DefaultMessageTimeToLive"] == "P2DT0.005S"
    assert made["AutoDeleteOnIdle"] == "P10675199DT2H48M5.4775807S"
    assert made["ForwardTo"] == f"http://localhost:{bridge.port}/{target}"
    assert made["UserMetadata"] == "who & why"
    with pytest.raises(Refused) as refused:
        dotnet.put(name, body, forwards=True)
    assert (refused.value.status, refused.value.code) == (409, "40900")

    _, _, description = read(dotnet.get(name))
    count = description.find(f"{SERVICE_BUS}MaxDeliveryCount")
    assert count is not None
    count.text = "8"
    _, changed, _ = read(dotnet.put(name, written(description), is_update=True, forwards=True))
    assert changed["MaxDeliveryCount"] == 8
    _, facts, _ = read(dotnet.get(name, enrich=True))
    assert {key: facts[key] for key in made if key not in ("UpdatedAt", "MaxDeliveryCount")} == {
        key: made[key] for key in made if key not in ("UpdatedAt", "MaxDeliveryCount")
    }
    assert (facts["MessageCount"], facts["ActiveMessageCount"], facts["SizeInBytes"]) == (0, 0, 0)
    page = listed(dotnet.get("$Resources/queues", page="&$skip=0&$top=100"), "QueueDescription")
    assert {name, target} <= {title for title, _, _ in page}

    dotnet.delete(name)
    with pytest.raises(Refused) as refused:
        dotnet.delete(name)
    assert refused.value.status == 404


def test_topics_subscriptions_and_rules_live_as_dotnet_wants_them(
    dotnet: Dotnet, name: str
) -> None:
    """Values of filters keep their types; what is not there is 404 but for a topic."""
    assert not listed(dotnet.get(name), "TopicDescription")
    topic = elements(
        MaxSizeInMegabytes="1024",
        RequiresDuplicateDetection="true",
        DuplicateDetectionHistoryTimeWindow="PT30S",
        EnableBatchedOperations="true",
        FilteringMessagesBeforePublishing="false",
        IsAnonymousAccessible="false",
        AuthorizationRules="",
        Status="Active",
        SupportOrdering="true",
        EnablePartitioning="false",
        EnableSubscriptionPartitioning="false",
        EnableExpress="false",
    )
    _, made, description = read(dotnet.put(name, described("Topic", topic)), "TopicDescription")
    assert made["DuplicateDetectionHistoryTimeWindow"] == "PT30S"
    dotnet.put(name, written(description), is_update=True)

    path = f"{name}/Subscriptions/one"
    with pytest.raises(Refused) as refused:
        dotnet.get(path)
    assert refused.value.status == 404
    subscription = (
        elements(
            LockDuration="PT1M",
            RequiresSession="false",
            DeadLetteringOnMessageExpiration="false",
            DeadLetteringOnFilterEvaluationExceptions="true",
        )
        + DEFAULT_RULE
        + elements(MaxDeliveryCount="10", EnableBatchedOperations="true", Status="Active")
    )
    kind = "SubscriptionDescription"
    title, made, description = read(dotnet.put(path, described("Subscription", subscription)), kind)
    assert (title, made["DeadLetteringOnFilterEvaluationExceptions"]) == ("one", True)
    _, changed, _ = read(dotnet.put(path, written(description), is_update=True), kind)
    assert changed["MaxDeliveryCount"] == 10

    rules = f"{path}/Rules"
    large = described(
        "Rule", sql("quantity &gt; @least", "SET seen = @least", "large", kind="long")
    )
    dotnet.put(f"{rules}/large", large)
    with pytest.raises(Refused) as refused:
        dotnet.put(f"{rules}/large", large)
    assert (refused.value.status, refused.value.code) == (409, "40900")
    given = {
        "text": ("string", "s1"),
        "small": ("int", "5"),
        "small long": ("long", "5"),
        "large": ("long", "5000000000"),
        "yes": ("boolean", "true"),
        "half": ("double", "0.5"),
        "when": ("dateTime", "2026-01-01T00:00:00.1234567Z"),
        "long": ("duration", "P1DT2H"),
        "short": ("duration", "PT0.0000001S"),
        "back": ("duration", "-PT1.5S"),
        "price": ("decimal", "79.90"),
    }
    dotnet.put(f"{rules}/exact", described("Rule", correlation(given, "exact")))
    text = dotnet.get(f"{path}/rules", page="&$skip=0&$top=100")
    found = {title: each for title, _, each in listed(text, "RuleDescription")}
    assert list(found) == ["$Default", "exact", "large"]
    types = {
        title: [each.find(f"{SERVICE_BUS}{tag}").attrib[TYPE] for tag in ("Filter", "Action")]  # type: ignore[union-attr]
        for title, each in found.items()
    }
    assert types == {
        "$Default": ["TrueFilter", "EmptyRuleAction"],
        "large": ["SqlFilter", "SqlRuleAction"],
        "exact": ["CorrelationFilter", "EmptyRuleAction"],
    }
    pairs = found["exact"].findall(f"{SERVICE_BUS}Filter/{SERVICE_BUS}Properties/*")
    values = {key: (kind, value) for key, kind, value in (value_of(each, text) for each in pairs)}
    assert values == given
    for tag in ("Filter", "Action"):
        (pair,) = found["large"].findall(f"{SERVICE_BUS}{tag}/{SERVICE_BUS}Parameters/*")
        assert value_of(pair, text) == ("@least", "long", "3")
    dotnet.put(f"{rules}/large", large.replace("@least</Sql", "@least + 1</Sql"), is_update=True)
    dotnet.delete(f"{rules}/large")
    with pytest.raises(Refused) as refused:
        dotnet.get(f"{rules}/large")
    assert refused.value.status == 404
    _, facts, _ = read(dotnet.get(name, enrich=True), "TopicDescription")
    assert (facts["SubscriptionCount"], facts["SqlFilterCount"]) == (1, 1)
    assert (facts["CorrelationFilterCount"], facts["ScheduledMessageCount"]) == (1, 0)


def test_whoever_has_a_right_to_the_namespace_may_ask_what_it_is(
    start_bridge: Any, tmp_path: Any
) -> None:
    """.NET promises it to any claim; a right to one entity is none to the namespace."""
    keys = tmp_path / "rules.json"
    keys.write_text(
        '{"rules": [{"name": "sender", "primaryKey": "a-key", "rights": ["Send"]},'
        '{"name": "other", "primaryKey": "b-key", "rights": ["Send"], "scope": "q"}]}'
    )
    bridge = start_bridge("--auth", str(keys))
    _, found, _ = read(
        Dotnet(bridge.port, "sender", "a-key").get("$namespaceinfo"), "NamespaceInfo"
    )
    assert (found["NamespaceType"], found["MessagingSKU"]) == ("Messaging", "Standard")
    with pytest.raises(Refused) as refused:
        Dotnet(bridge.port, "other", "b-key", "q").get("$namespaceinfo")
    assert refused.value.status == 401


def test_access_rules_come_back_as_dotnet_made_them(
    dotnet: Dotnet, admin: ServiceBusAdministrationClient, name: str
) -> None:
    """A right of Manage with both others; keys of 44 characters."""
    admin.create_queue(
        name,
        authorization_rules=[
            AuthorizationRule(
                type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey",
                claim_value="None", rights=["Manage", "Send", "Listen"], key_name="owner",
            )
        ],
    )  # fmt: skip
    _, _, description = read(dotnet.get(name))
    for _ in range(2):
        (rule,) = description.findall(f"{SERVICE_BUS}AuthorizationRules/*")
        assert rule.attrib[TYPE] == "SharedAccessAuthorizationRule"
        rights = [each.text for each in rule.findall(f"{SERVICE_BUS}Rights/*")]
        assert sorted(map(str, rights)) == ["Listen", "Manage", "Send"]
        keys = [rule.findtext(f"{SERVICE_BUS}{each}Key") for each in ("Primary", "Secondary")]
        assert all(len(base64.b64decode(key or "")) == 32 for key in keys)
        _, _, description = read(dotnet.put(name, written(description), is_update=True))


def test_a_body_is_asked_for_as_dotnet_framework_waits_for_it(
    dotnet: Dotnet, bridge: Bridge, name: str
) -> None:
    """It announces each body first (Expect: 100-continue)."""
    body = described("Queue", elements(**QUEUE)).encode()
    head = (
        f"PUT /{name}?api-version=2021-05 HTTP/1.1\r\nHost: localhost:{bridge.port}\r\n"
        f"Authorization: {dotnet.token}\r\nExpect: 100-continue\r\n"
        f"Content-Type: application/atom+xml\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("localhost", bridge.port), 10) as peer:
        peer.sendall(head.encode())
        assert peer.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(body)
        assert peer.recv(1024).startswith(b"HTTP/1.1 201 ")
    assert read(dotnet.get(name))[0] == name
