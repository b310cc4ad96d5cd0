"""Topics, subscriptions and rules, by Python's real administration client over HTTPS."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.acceptance.sdk import client_of, receive, take, unique
from tests.fixtures.administration import connection_string
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import eventually

ENTITIES: dict[str, Any] = {"other": {}}


@pytest.fixture
def topic(admin: ServiceBusAdministrationClient) -> Iterator[str]:
    """A topic; deleted at the end, with whatever has a name that begins with its."""
    chosen = unique("t")
    admin.create_topic(chosen)
    yield chosen
    for each in admin.list_topics():
        if each.name.startswith(chosen):
            admin.delete_topic(each.name)
    for queue in admin.list_queues():
        if queue.name.startswith(chosen):
            admin.delete_queue(queue.name)


def rule(name: str, given: Any) -> RuleProperties:
    """A rule without an action."""
    return RuleProperties(name, filter=given, action=None, created_at_utc=None)


def publish(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    """Send messages to a topic."""
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(list(messages))


def test_a_topic_is_made_with_every_property_and_read_back(
    admin: ServiceBusAdministrationClient, topic: str
) -> None:
    """Each is kept, whether or not it has an effect yet."""
    given: dict[str, Any] = {
        "auto_delete_on_idle": timedelta(minutes=7, seconds=1),
        "default_message_time_to_live": timedelta(days=2, milliseconds=5),
        "duplicate_detection_history_time_window": timedelta(minutes=12),
        "enable_batched_operations": False,
        "enable_express": False,
        "enable_partitioning": False,
        "filtering_messages_before_publishing": False,
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "support_ordering": False,
        "user_metadata": "<who & why>",
    }
    name = f"{topic}/every/Property"
    made = admin.create_topic(name, **given)
    read = admin.get_topic(name)

    for found in (made, read):
        assert {key: getattr(found, key) for key in given} == given
        assert (found.name, found.status) == (name, EntityStatus.ACTIVE)
        assert (found.availability_status, found.max_message_size_in_kilobytes) == (
            "Available",
            256,
        )


def test_a_subscription_is_made_with_every_property_and_read_back(
    admin: ServiceBusAdministrationClient, topic: str, admin_port: int
) -> None:
    """Each is kept; what it forwards to comes back as a URL."""
    given: dict[str, Any] = {
        "auto_delete_on_idle": timedelta(minutes=7, seconds=1),
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": timedelta(days=2, milliseconds=5),
        "enable_batched_operations": False,
        "lock_duration": timedelta(seconds=13),
        "max_delivery_count": 14,
        "requires_session": False,
        "user_metadata": "<who & why>",
    }
    target = f"{topic}-target"
    admin.create_queue(target)
    made = admin.create_subscription(
        topic, "Every", forward_to=target, forward_dead_lettered_messages_to=target, **given
    )
    read = admin.get_subscription(topic, "Every")

    url = f"sb://localhost:{admin_port}/{target}"
    for found in (made, read):
        assert {key: getattr(found, key) for key in given} == given
        assert (found.name, found.status) == ("Every", EntityStatus.ACTIVE)
        assert (found.forward_to, found.forward_dead_lettered_messages_to) == (url, url)
    assert admin.get_topic_runtime_properties(topic).subscription_count == 1


def test_new_subscriptions_get_what_is_sent_after_them(
    admin: ServiceBusAdministrationClient, bridge: Bridge, topic: str
) -> None:
    """At once; what was sent before is not for them, and counts follow."""
    with client_of(bridge) as client:
        admin.create_subscription(topic, "first")
        publish(client, topic, ServiceBusMessage("a"))
        admin.create_subscription(topic, "second")
        publish(client, topic, ServiceBusMessage("b"))

        def active() -> list[int | None]:
            found = admin.list_subscriptions_runtime_properties(topic)
            return [each.active_message_count for each in found]

        eventually(lambda: active() == [2, 1], "they are counted")
        for name, bodies in (("first", ["a", "b"]), ("second", ["b"])):
            with client.get_subscription_receiver(topic, name) as receiver:
                assert [str(message) for message in take(receiver, len(bodies))] == bodies
        eventually(lambda: active() == [0, 0], "they are counted no more")


def test_scheduled_messages_of_a_topic_are_counted_at_the_topic(
    admin: ServiceBusAdministrationClient, bridge: Bridge, topic: str
) -> None:
    """As Azure counts them: its subscriptions have none of them yet."""
    admin.create_subscription(topic, "all")
    with client_of(bridge) as client, client.get_topic_sender(topic) as sender:
        later = datetime.now(UTC) + timedelta(minutes=5)
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], later)

        def scheduled() -> int:
            return int(admin.get_topic_runtime_properties(topic).scheduled_message_count or 0)

        eventually(lambda: scheduled() == 2, "both are counted")
        sender.cancel_scheduled_messages(numbers[0])
        eventually(lambda: scheduled() == 1, "one is counted")
    assert admin.get_subscription_runtime_properties(topic, "all").total_message_count == 0


def test_rules_are_made_changed_and_deleted(
    admin: ServiceBusAdministrationClient, topic: str
) -> None:
    """Every filter with every type of value; a new subscription has `$Default`."""
    admin.create_subscription(topic, "sub")
    values = {
        "text": "a<b",
        "whole": 7,
        "large": 2**40,
        "yes": True,
        "real": 1.5,
        "at": datetime(2026, 7, 5, 11, 12, 13, tzinfo=UTC),
        "local": datetime(2026, 7, 5, 11, 12, 13),  # noqa: DTZ001 (without a zone)
        "long": timedelta(hours=3, seconds=1),
    }
    filters = {
        "correlation": CorrelationRuleFilter(
            correlation_id="c", content_type="t", label="l", message_id="m", reply_to="r",
            reply_to_session_id="rs", session_id="s", to="to", properties=dict(values),
        ),
        "sql": SqlRuleFilter("color = @text AND size > @whole", parameters=dict(values)),
        "true": TrueRuleFilter(),
        "false": FalseRuleFilter(),
    }  # fmt: skip
    (default,) = admin.list_rules(topic, "sub")
    assert (default.name, type(default.filter)) == ("$Default", TrueRuleFilter)
    for name, given in filters.items():
        action = SqlRuleAction("SET priority = 'low'") if name == "sql" else None
        admin.create_rule(topic, "sub", name, filter=given, action=action)
        read = admin.get_rule(topic, "sub", name)
        assert (read.name, type(read.filter)) == (name, type(given))
        if name not in ("true", "false"):
            assert _fields(read.filter) == _fields(given)
        assert (read.action.sql_expression if read.action else None) == (
            action.sql_expression if action else None
        )
    with pytest.raises(ResourceExistsError):
        admin.create_rule(topic, "sub", "TRUE")

    admin.delete_rule(topic, "sub", "$Default")
    admin.update_rule(topic, "sub", rule("true", SqlRuleFilter("a = 1")))
    changed = admin.get_rule(topic, "sub", "true")
    assert isinstance(changed.filter, SqlRuleFilter)
    assert changed.filter.sql_expression == "a = 1"
    assert {rule.name for rule in admin.list_rules(topic, "sub")} == set(filters)
    facts = admin.get_topic(topic)
    assert facts.name == topic


def test_a_rule_has_a_time_of_its_own(admin: ServiceBusAdministrationClient, topic: str) -> None:
    """`$Default` that of its subscription; a change leaves it as it is."""
    admin.create_subscription(topic, "sub")
    made = admin.get_subscription_runtime_properties(topic, "sub").created_at_utc
    eventually(lambda: datetime.now(UTC) > made, "the clock goes on")
    admin.create_rule(topic, "sub", "late", filter=TrueRuleFilter())
    assert admin.get_rule(topic, "sub", "$Default").created_at_utc == made
    late = admin.get_rule(topic, "sub", "late").created_at_utc
    assert made < late <= datetime.now(UTC)
    admin.update_rule(topic, "sub", rule("late", SqlRuleFilter("a = 1")))
    assert admin.get_rule(topic, "sub", "late").created_at_utc == late


def _fields(given: Any) -> dict[str, Any]:
    """Return what a filter says, without what the service adds."""
    left_out = {"requires_preprocessing"}
    return {
        name: value
        for name, value in vars(given).items()
        if name not in left_out and value not in (None, {})
    }


def test_a_rule_takes_effect_on_what_is_sent_after_it(
    admin: ServiceBusAdministrationClient, bridge: Bridge, topic: str
) -> None:
    """Added, changed and taken away, of a live subscription."""
    admin.create_subscription(topic, "sub")
    admin.create_rule(
        topic, "sub", "red", filter=CorrelationRuleFilter(properties={"color": "red"})
    )
    admin.delete_rule(topic, "sub", "$Default")

    def sent(*colors: str) -> list[str]:
        """Send a message of each color and return what comes, up to the last red one."""
        messages = [ServiceBusMessage(c, application_properties={"color": c}) for c in colors]
        publish(client, topic, *messages)
        return [str(message) for message in take(receiver, 1)]

    with client_of(bridge) as client, client.get_subscription_receiver(topic, "sub") as receiver:
        assert sent("blue", "red") == ["red"]
        admin.update_rule(
            topic,
            "sub",
            rule("red", CorrelationRuleFilter(properties={"color": "green"})),
        )
        assert sent("blue", "red", "green") == ["green"]


def test_what_is_not_there_is_not_found(admin: ServiceBusAdministrationClient, topic: str) -> None:
    """Topics, subscriptions and rules, read and deleted."""
    admin.create_subscription(topic, "sub")
    for call in (
        lambda: admin.get_topic("nothing-here"),
        lambda: admin.get_topic_runtime_properties("nothing-here"),
        lambda: admin.delete_topic("nothing-here"),
        lambda: admin.get_subscription(topic, "nothing-here"),
        lambda: admin.get_subscription("nothing-here", "sub"),
        lambda: admin.get_subscription_runtime_properties(topic, "nothing-here"),
        lambda: admin.create_subscription("nothing-here", "sub"),
        lambda: admin.delete_subscription(topic, "nothing-here"),
        lambda: list(admin.list_subscriptions("nothing-here")),
        lambda: admin.get_rule(topic, "sub", "nothing-here"),
        lambda: admin.get_rule(topic, "nothing-here", "rule"),
        lambda: admin.create_rule(topic, "nothing-here", "rule"),
        lambda: admin.update_rule(topic, "sub", rule("nothing-here", TrueRuleFilter())),
        lambda: admin.delete_rule(topic, "sub", "nothing-here"),
        lambda: list(admin.list_rules(topic, "nothing-here")),
    ):
        with pytest.raises(ResourceNotFoundError):
            call()


@pytest.mark.parametrize("bad", ["x" * 51, "a b", "a*"])
def test_bad_names_of_subscriptions_and_rules_are_refused(
    admin: ServiceBusAdministrationClient, topic: str, bad: str
) -> None:
    """50 characters at most, of the same kinds as an entity's; 400, and nothing is made."""
    with pytest.raises(HttpResponseError, match="is not valid: 1 to 50") as caught:
        admin.create_subscription(topic, bad)
    assert caught.value.status_code == 400
    admin.create_subscription(topic, "x" * 50)
    with pytest.raises(HttpResponseError, match=r"rule name .* is not valid: 1 to 50") as caught:
        admin.create_rule(topic, "x" * 50, bad)
    assert caught.value.status_code == 400
    assert [rule.name for rule in admin.list_rules(topic, "x" * 50)] == ["$Default"]


def test_names_of_rules_have_no_case(admin: ServiceBusAdministrationClient, topic: str) -> None:
    """The default rule's neither; a rule keeps the spelling in which it was made."""
    admin.create_subscription(topic, "sub")
    with pytest.raises(ResourceExistsError):
        admin.create_rule(topic, "sub", "$default", filter=TrueRuleFilter())
    admin.delete_rule(topic, "sub", "$DEFAULT")
    admin.create_rule(topic, "sub", "$default", filter=FalseRuleFilter())
    admin.create_rule(topic, "sub", "Red", filter=SqlRuleFilter("color = 'red'"))
    with pytest.raises(ResourceExistsError):
        admin.create_rule(topic, "sub", "RED", filter=TrueRuleFilter())

    rule = admin.get_rule(topic, "sub", "rED")
    rule.name = "red"
    rule.filter = SqlRuleFilter("color = 'ruby'")
    admin.update_rule(topic, "sub", rule)

    assert [each.name for each in admin.list_rules(topic, "sub")] == ["$default", "Red"]
    assert admin.get_rule(topic, "sub", "Red").filter.sql_expression == "color = 'ruby'"


def test_names_are_taken_once(admin: ServiceBusAdministrationClient, topic: str) -> None:
    """A topic's by a queue, too; of eight subscriptions at once one is made."""
    for create in (admin.create_topic, admin.create_queue):
        with pytest.raises(ResourceExistsError, match="SubCode=40900"):
            create(topic.upper())

    def create_one(number: int) -> int:
        try:
            admin.create_subscription(topic, "sub")
        except ResourceExistsError:
            return 409
        return 201

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(create_one, range(8))) == [201, *[409] * 7]


@pytest.mark.parametrize(
    ("expression", "message"),
    [("color = ", "end at character 9"), ("x" * 1025, "1,?024"), ("color == 'red'", "=")],
)
def test_bad_filters_are_refused(
    admin: ServiceBusAdministrationClient, topic: str, expression: str, message: str
) -> None:
    """400 and sub-code 40000, with what is wrong; nothing is made."""
    admin.create_subscription(topic, "sub")
    with pytest.raises(HttpResponseError, match=message) as caught:
        admin.create_rule(topic, "sub", "bad", filter=SqlRuleFilter(expression))
    assert caught.value.status_code == 400
    assert "SubCode=40000." in caught.value.message
    assert [rule.name for rule in admin.list_rules(topic, "sub")] == ["$Default"]


def test_an_update_takes_effect(
    admin: ServiceBusAdministrationClient, bridge: Bridge, topic: str
) -> None:
    """Of a topic and of a subscription, while they are used."""
    admin.create_subscription(topic, "sub")
    subscription = admin.get_subscription(topic, "sub")
    subscription.lock_duration = timedelta(seconds=5)
    subscription.max_delivery_count = 1
    admin.update_subscription(topic, subscription)
    with client_of(bridge) as client, client.get_subscription_receiver(topic, "sub") as receiver:
        publish(client, topic, ServiceBusMessage("a"))
        (message,) = receive(receiver)
        assert (message.locked_until_utc - datetime.now(UTC)).total_seconds() < 6
        receiver.abandon_message(message)

        def dead() -> int:
            found = admin.get_subscription_runtime_properties(topic, "sub")
            return int(found.dead_letter_message_count or 0)

        eventually(lambda: dead() == 1, "it is dead-lettered at its first failure")

        found = admin.get_topic(topic)
        found.status = EntityStatus.SEND_DISABLED
        found.user_metadata = "changed"
        admin.update_topic(found)
        with pytest.raises(ServiceBusError, match="disabled for Send"):
            publish(client, topic, ServiceBusMessage("refused"))
    assert admin.get_topic(topic).user_metadata == "changed"
    assert [rule.name for rule in admin.list_rules(topic, "sub")] == ["$Default"]


def test_lists_come_in_pages(admin: ServiceBusAdministrationClient, topic: str) -> None:
    """Topics, subscriptions and rules, each once, by name."""
    names = [f"s{number}" for number in range(5)]
    for name in names:
        admin.create_subscription(topic, name)
    for name in reversed(names):
        admin.create_rule(topic, "s0", name)

    assert [each.name for each in admin.list_subscriptions(topic, max_page_size=2)] == names
    found = admin.list_subscriptions_runtime_properties(topic, start_index=1, max_page_size=3)
    assert [each.name for each in found] == names[1:]
    rules = [each.name for each in admin.list_rules(topic, "s0", max_page_size=4)]
    assert rules == ["$Default", *names]
    facts = {each.name: each for each in admin.list_topics_runtime_properties(max_page_size=1)}
    assert facts[topic].subscription_count == 5


def test_a_deleted_topic_is_gone_with_its_subscriptions(
    admin: ServiceBusAdministrationClient, bridge: Bridge, topic: str
) -> None:
    """Made again, it has none; a subscription made again is empty."""
    admin.create_subscription(topic, "sub")
    with client_of(bridge) as client:
        publish(client, topic, ServiceBusMessage("old"))
        admin.delete_subscription(topic, "sub")
        admin.create_subscription(topic, "sub")
        assert admin.get_subscription_runtime_properties(topic, "sub").total_message_count == 0
        publish(client, topic, ServiceBusMessage("old"))
        admin.delete_topic(topic)
        with pytest.raises(ServiceBusError):
            publish(client, topic, ServiceBusMessage("nobody takes it"))
        admin.create_topic(topic)
        assert list(admin.list_subscriptions(topic)) == []
        admin.create_subscription(topic, "sub")
        publish(client, topic, ServiceBusMessage("new"))
        with client.get_subscription_receiver(topic, "sub") as receiver:
            (message,) = take(receiver)
            assert (str(message), message.sequence_number) == ("new", 1)


def test_rules_of_a_topic_are_inherited_by_its_subscriptions(
    admin: ServiceBusAdministrationClient, bridge: Bridge, topic: str
) -> None:
    """A topic's listener receives from a subscription and does not send; 12 rules are the most."""
    name = f"{topic}-guarded"
    rules = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
            rights=["Listen"], key_name=f"reader{number}", primary_key="one", secondary_key="two",
        )
        for number in range(13)
    ]  # fmt: skip
    with pytest.raises(HttpResponseError, match="number of authorization rules is 13"):
        admin.create_topic(name, authorization_rules=rules)
    admin.create_topic(name, authorization_rules=rules[:12])
    admin.create_subscription(name, "sub")
    assert len(admin.get_topic(name).authorization_rules) == 12

    text = f"{connection_string(bridge.port, 'reader3', 'two')};UseDevelopmentEmulator=true"
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        with client.get_subscription_receiver(name, "sub") as receiver:
            assert receiver.receive_messages(1, max_wait_time=0.5) == []
        with pytest.raises(ServiceBusError):
            publish(client, name, ServiceBusMessage("not allowed"))
