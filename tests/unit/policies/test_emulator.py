"""The emulator's Config.json."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.model import entity as model
from bridge.model.entity import DAY_MS, MINUTE_MS, SECOND_MS
from policies.errors import ReadError
from policies.readers import emulator, jsontext, read
from policies.writers import emulator as written


def config(queues: list[Any] | None = None, topics: list[Any] | None = None) -> str:
    """Return a Config.json with these entities."""
    namespace = {"Name": "sbemulatorns", "Queues": queues or [], "Topics": topics or []}
    return json.dumps({"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}})


def refused(text: str) -> str:
    """Return why a Config.json is refused."""
    with pytest.raises(ReadError) as caught:
        emulator.read_document(jsontext.parse(text, "Config.json"), "Config.json")
    return str(caught.value)


def test_omitted_properties_have_the_emulators_defaults() -> None:
    """One hour of TTL, three deliveries, 20 seconds of duplicate detection: not Azure's."""
    topic = {"Name": "t", "Subscriptions": [{"Name": "s"}]}

    namespace = read(config([{"Name": "q"}], [topic]), "Config.json").namespace

    queue = model.Queue(
        name="q",
        default_message_time_to_live_ms=60 * MINUTE_MS,
        duplicate_detection_history_time_window_ms=20 * SECOND_MS,
        max_delivery_count=3,
        lock_duration_ms=MINUTE_MS,
    )
    subscription = model.Subscription(
        topic="t",
        name="s",
        default_message_time_to_live_ms=60 * MINUTE_MS,
        max_delivery_count=3,
    )
    assert (queue,) == namespace.queues
    assert (subscription,) == namespace.topics[0].subscriptions
    assert namespace.topics[0].default_message_time_to_live_ms == 60 * MINUTE_MS


def test_limits_are_azures() -> None:
    """14 days, any count of deliveries and further properties are taken, unlike by the emulator."""
    given = {
        "DefaultMessageTimeToLive": "P14D",
        "MaxDeliveryCount": 2**31 - 1,
        "AutoDeleteOnIdle": "PT5M",
        "UserMetadata": "ours",
        "Status": "Disabled",
    }

    queue = read(config([{"Name": "q", "Properties": given}]), "x").namespace.queues[0]

    assert queue.default_message_time_to_live_ms == 14 * DAY_MS
    assert (queue.max_delivery_count, queue.auto_delete_on_idle_ms) == (2**31 - 1, 5 * MINUTE_MS)
    assert (queue.user_metadata, queue.status) == ("ours", model.EntityStatus.DISABLED)


def test_a_shared_file_needs_no_topics_and_no_logging() -> None:
    """Keys that the emulator's schema asks for but that give no entity may be left out."""
    text = '{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "q"}]}]}}'

    assert read(text, "x").namespace.queues[0].name == "q"


def test_more_than_fifty_queues_are_taken() -> None:
    """The emulator's number of entities is not Azure's."""
    queues = [{"Name": f"q{number}"} for number in range(200)]

    assert len(read(config(queues), "x").namespace.queues) == 200


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("LockDuration", "PT10M", "Queue 'q': LockDuration is PT10M; Service Bus takes PT5S to "
         "PT5M."),
        ("LockDuration", "one minute", "Queue 'q': LockDuration is 'one minute'; a duration is "
         "ISO 8601 of days and less, such as PT30S, PT1M or P14D."),
        ("LockDuration", 60, "Queue 'q': LockDuration is 60; a duration is a text such as PT30S, "
         "PT1M or P14D."),
        ("MaxDeliveryCount", 0, "Queue 'q': MaxDeliveryCount is 0; Service Bus takes 1 to "
         "2147483647."),
        ("MaxDeliveryCount", 2**31, "Queue 'q': MaxDeliveryCount is 2147483648; Service Bus takes "
         "1 to 2147483647."),
        ("MaxDeliveryCount", "many", "Queue 'q': MaxDeliveryCount is 'many'; it is a whole "
         "number."),
        ("RequiresSession", "maybe", "Queue 'q': RequiresSession is 'maybe'; it is true or "
         "false."),
        ("Status", "Broken", "Queue 'q': Status is 'Broken'; it is one of Active, Disabled, "
         "SendDisabled, ReceiveDisabled."),
        ("UserMetadata", 7, "Queue 'q': UserMetadata is 7; it is a text."),
        ("LockDurations", "PT1M", "The key 'LockDurations' is not known here. Did you mean "
         "'LockDuration'?"),
    ],
)  # fmt: skip
def test_a_bad_property_names_entity_place_and_remedy(key: str, value: Any, message: str) -> None:
    """One fault, with the path of the property."""
    text = config([{"Name": "q", "Properties": {key: value}}])

    path = f"$.UserConfig.Namespaces[0].Queues[0].Properties.{key}"
    assert f"Config.json: line 1, {path}: {message}" == refused(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "line 1, $: The document is an array. It must be an object."),
        ('{"UserConfig": {"Namespaces": []}}', "line 1, $.UserConfig.Namespaces: Namespaces has 0 "
         "entries. It has one at least."),
        ('{"UserConfig": {"Namespaces": [{"Queues": {}}]}}',
         "line 1, $.UserConfig.Namespaces[0]: The namespace has no Name. Give it one.\n"
         "Config.json: line 1, $.UserConfig.Namespaces[0].Queues: Queues is an object. It must be "
         "an array."),
        ('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": ["q"]}]}}',
         "line 1, $.UserConfig.Namespaces[0].Queues[0]: A queue is a string. It must be an "
         "object."),
        ('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Properties": {}}]}]}}',
         "line 1, $.UserConfig.Namespaces[0].Queues[0]: A queue has no Name. Give it one."),
        ('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "?"}]}]}}',
         "line 1, $.UserConfig.Namespaces[0].Queues[0]: The entity name '?' is not valid: 1 to 260 "
         "letters, digits, '.', '-', '_', '~' or '/', beginning with a letter, a "
         "digit or '_' and ending with none of '.' and '/'. Change it to what Service Bus takes."),
        ('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [\n{"Name": "q"},\n{"Name": "Q"}]'
         "}]}}",
         "line 3, $.UserConfig.Namespaces[0].Queues[1]: Queue 'Q' has the name of Queue 'q' at "
         "line 2, $.UserConfig.Namespaces[0].Queues[0]; names are not case-sensitive. Rename or "
         "remove one of them."),
    ],
)  # fmt: skip
def test_a_file_of_another_shape_is_refused(text: str, message: str) -> None:
    """A value that contradicts the schema is named with its place."""
    assert f"Config.json: {message}" == refused(text)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"FilterType": "Magic"}, "FilterType is 'Magic'. It is Sql or Correlation."),
        ({"FilterType": "Sql"}, "has no filter. Give it a SQL or a correlation filter."),
        ({"FilterType": "Correlation", "CorrelationFilter": {}}, "its correlation filter is empty. "
         "Name at least one field or property, or use the SQL filter 1=1."),
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "x" * 1025}}, "its filter has 1025 "
         "characters; Service Bus takes 1024. Split the rule."),
        ({"FilterType": "Correlation", "CorrelationFilter": {"Label": "a", "Properties":
         {"p": [1]}}}, "The property 'p' of a correlation filter is an array. It is a text, a "
         "number or a boolean."),
        ({"FilterType": "Correlation", "CorrelationFilter": {"Label": "a", "Properties": ["p"]}},
         "Properties is an array. It must be an object."),
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1"}, "Action": "SET a = 2"},
         "Action is a string. It must be an object."),
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": 1}},
         "SqlExpression is a number. It must be a string."),
    ],
)  # fmt: skip
def test_a_bad_rule_names_subscription_and_remedy(rule: Any, message: str) -> None:
    """Rules without a usable filter are refused."""
    subscription = {"Name": "s", "Rules": [{"Name": "r", "Properties": rule}]}

    assert message in refused(config(topics=[{"Name": "t", "Subscriptions": [subscription]}]))


def test_every_fault_is_reported_at_once() -> None:
    """Three faults in three entities are three lines, in the order of the file."""
    properties = {"LockDuration": "PT9M", "MaxDeliveryCount": 0}
    text = config([{"Name": "a", "Properties": properties}, {"Name": "b", "Typo": 1}])

    assert sorted(line.split(": ", 2)[2] for line in refused(text).splitlines()) == [
        "Queue 'a': LockDuration is PT9M; Service Bus takes PT5S to PT5M.",
        "Queue 'a': MaxDeliveryCount is 0; Service Bus takes 1 to 2147483647.",
        "The key 'Typo' is not known here. Known here: Name, Properties.",
    ]


def test_a_forward_to_nowhere_is_a_finding() -> None:
    """Service Bus refuses a target that is not there; here the file may be a part."""
    properties = {"ForwardTo": "elsewhere"}

    reading = read(config([{"Name": "q", "Properties": properties}]), "Config.json")

    (finding,) = reading.findings
    assert (finding.entity, finding.property, finding.grade) == ("q", "ForwardTo", "lost")
    assert "Queue 'q' forwards to 'elsewhere', which is not in the input." in finding.message


def test_what_config_json_has_no_place_for_is_named_when_one_is_written() -> None:
    """Tier, access rules and the parameters of SQL filters; none of their keys is shown."""
    rule = model.AuthorizationRule(
        name="app", primary_key="secret", rights=frozenset({model.Right.SEND})
    )
    expression = model.SqlFilter(expression="a = @a", parameters=(("@a", 1),))
    subscription = model.Subscription(
        topic="t", name="s", rules=(model.Rule(name="r", filter=expression),)
    )
    namespace = model.Namespace(
        tier=model.Tier.PREMIUM,
        queues=(model.Queue(name="q", authorization_rules=(rule,)),),
        topics=(model.Topic(name="t", subscriptions=(subscription,)),),
    )
    text, lost = written.write(namespace)

    assert [(each.entity, each.property, each.grade) for each in lost] == [
        ("", "Tier", "lost"),
        ("q", "AuthorizationRules", "lost"),
        (subscription.path, "Rules", "lost"),
    ]
    assert "secret" not in text + str(lost)
