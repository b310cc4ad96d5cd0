"""SQL actions: what SET and REMOVE do to a subscription's copy, seen as an SDK sees it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from bridge.model.entity import Rule, SqlFilter, TrueFilter
from bridge.model.filters.action import compile_action
from bridge.model.filters.changes import REMOVED, PropertyChange
from bridge.model.filters.errors import FilterException, InvalidRule
from bridge.model.filters.rules import Match, RuleSet
from bridge.wire import headers
from bridge.wire.amqp10.message import AmqpMessage, decode_message, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.types import Described, Int, Long, Symbol, Timestamp, Uint
from bridge.wire.basic import Properties
from bridge.wire.canonical import is_canonical
from bridge.wire.envelope import Item
from bridge.wire.mapping.inward import record_from_message
from bridge.wire.mapping.outward import message_from_record
from bridge.wire.message_view import MessageView
from bridge.wire.record import Record
from bridge.wire.rule_copy import changed_copy
from tests.unit.filters.subjects import GUID, message

BYTES_MAX = 120_000


def view_of(item: Item) -> MessageView:
    """Return a message as filters see it."""
    return MessageView(item, number=1, enqueued_ms=0, ttl_ms=None)


def sent(properties: MessageProperties | None = None, **user: Any) -> Item:
    """Return what an SDK's message becomes in RabbitMQ."""
    raw = encode_message(
        AmqpMessage(
            properties=properties or MessageProperties(), application_properties=user, value="body"
        )
    )
    record = record_from_message(raw, new_message_id="m").record
    table = record.properties.headers or {}
    table.pop(headers.TIME_TO_LIVE, None)
    return Item(record.properties.encode(), record.body)


def acted(item: Item, action: str, rule_name: str = "r") -> Item:
    """Return the copy that a rule with this action makes."""
    rule = Rule(name=rule_name, filter=TrueFilter(), action=action)
    selection = RuleSet.of({"s": (rule,)}, new_id=lambda: GUID).select(view_of(item))
    (match,) = selection.matches
    assert match.changes is not None
    assert match.rule_name == rule_name
    copy = changed_copy(item, rule_name, match.changes, properties_bytes_max=BYTES_MAX)
    assert is_canonical(copy.properties)
    assert copy.body == item.body
    return copy


def received(item: Item) -> AmqpMessage:
    """Return what an SDK receives."""
    record = Record(Properties.decode(item.properties), item.body)
    return decode_message(message_from_record(record, sequence_number=1, enqueued_ms=0))


def failing(action: str, view: MessageView) -> str:
    """Return why an action fails."""
    rule = Rule(name="r", filter=TrueFilter(), action=action)
    selection = RuleSet.of({"s": (rule,)}, new_id=lambda: GUID).select(view)
    assert not selection.matches
    (failure,) = selection.failures
    return failure.description


def test_the_documented_example() -> None:
    """Statements with and without semicolons; a number keeps its type."""
    action = "SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';"
    found = received(acted(sent(quantity=Int(5), priority="high", other=True), action, "halve"))
    assert found.application_properties == {"quantity": 2, "other": True, "RuleName": "halve"}
    assert type(found.application_properties["quantity"]) is Int
    assert found.properties is not None
    assert found.properties.correlation_id == "low"
    assert found.properties.message_id == "m"


def test_the_original_does_not_change() -> None:
    """Other subscriptions get what was sent."""
    item = sent(a=1)
    before = item.properties
    acted(item, "SET a = 2 SET sys.Label = 'x' REMOVE a")
    assert item.properties == before


def test_later_statements_see_earlier_ones() -> None:
    """One after another, names in any case; a new property is named as written."""
    found = received(acted(sent(Count=1), "SET cOUNT = count + 1 SET NEW = Count + 1 REMOVE COUNT"))
    assert found.application_properties == {"NEW": 3, "RuleName": "r"}


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        (Int(1), "'12'", Int(12)),
        (Int(1), "2.5", Int(2)),
        (Int(1), "3.5", Int(4)),
        (Int(1), "4294967296", Long(4294967296)),
        (Uint(1), "7", Uint(7)),
        (1.5, "2", 2.0),
        (1.5, "'1E1'", 10.0),
        ("x", "5", "5"),
        ("x", "TRUE", "True"),
        ("x", "NULL", None),
        (True, "'false'", False),
        (True, "0", False),
        (UUID(int=2), "'00000000-0000-0000-0000-000000000003'", UUID(int=3)),
        (Timestamp(0), "'2023-11-14T22:13:20Z'", Timestamp(1_700_000_000_000)),
        (None, "5", Long(5)),
        ("x", "missing", None),
    ],
)
def test_set_converts_to_the_type_that_the_property_has(
    before: Any, value: str, after: Any
) -> None:
    """As .NET converts; an AMQP type stays if the value fits."""
    found = received(acted(sent(p=before), f"SET p = {value}"))
    assert found.application_properties == {"p": after, "RuleName": "r"}
    assert isinstance(found.application_properties["p"], type(after))


def test_new_properties_take_the_type_of_the_value() -> None:
    """Int64, Double, Boolean, String, Guid, DateTime and TimeSpan."""
    action = (
        "SET i = 1 SET d = 1.5 SET b = TRUE SET s = 'x' SET g = newid() SET n = NULL "
        "SET t = sys.EnqueuedTimeUtc SET l = sys.TimeToLive - sys.TimeToLive"
    )
    found = received(acted(sent(), action)).application_properties
    assert {name: found[name] for name in "idbsgnt"} == {
        "i": 1,
        "d": 1.5,
        "b": True,
        "s": "x",
        "g": GUID,
        "n": None,
        "t": Timestamp(0),
    }
    assert found["l"] == Described(Symbol("com.microsoft:timespan"), 0)


def test_every_settable_system_property() -> None:
    """Texts of the properties and annotations, and the time to live."""
    names = "ContentType CorrelationId Label MessageId ReplyTo ReplyToSessionId SessionId To"
    action = " ".join(f"SET sys.{name} = '{name}'" for name in names.split())
    action += " SET sys.PartitionKey = 'k' SET sys.ScheduledEnqueueTimeUtc = '2030-01-01T00:00:00'"
    action += " SET sys.TimeToLive = 'PT5S'"
    for item in (sent(), sent(MessageProperties(message_id=UUID(int=5), subject="old"))):
        copy = acted(item, action)
        found = received(copy).properties
        assert found is not None
        assert [str(getattr(found, name)) for name in AMQP_NAMES] == names.split()
        assert copy.ttl_ms == 5000
        assert copy.scheduled_ms is None
        assert view_of(copy).system("partitionkey") == "k"
        assert view_of(copy).system("label") == "Label"
        assert (
            view_of(acted(copy, "REMOVE sys.Label SET sys.TimeToLive = NULL")).system("label")
            is None
        )


AMQP_NAMES = (
    "content_type",
    "correlation_id",
    "subject",
    "message_id",
    "reply_to",
    "reply_to_group_id",
    "group_id",
    "to",
)


def test_what_an_sdk_sent_exactly_stays_exact() -> None:
    """Values that 0-9-1 cannot say survive beside a change."""
    item = sent(u=UUID(int=9), many=[1, 2], gone=UUID(int=1), n=1)
    found = received(acted(item, "SET n = 2 REMOVE gone")).application_properties
    assert found == {"u": UUID(int=9), "many": [1, 2], "n": 2, "RuleName": "r"}


def test_a_rule_name_of_another_copy_is_replaced() -> None:
    """A message that was forwarded carries the name of the last rule."""
    once = acted(sent(), "SET a = 1", "one")
    found = received(acted(once, "SET a = 2", "two")).application_properties
    assert found == {"a": 2, "RuleName": "two"}


def test_rules_with_actions_give_copies_of_their_own() -> None:
    """Two rules with actions and two without: three copies."""
    made = [
        Rule(name="plain", filter=TrueFilter()),
        Rule(name="one", filter=SqlFilter(expression="a = 1"), action="SET b = 1"),
        Rule(name="again", filter=SqlFilter(expression="a = 1")),
        Rule(name="two", filter=SqlFilter(expression="a > 0"), action="REMOVE a"),
        Rule(name="no", filter=SqlFilter(expression="a > 1"), action="REMOVE a"),
    ]
    selection = RuleSet.of({"s": made}, new_id=lambda: GUID).select(message(a=1))
    assert selection.matches == [
        Match("s"),
        Match("s", "one", (PropertyChange(False, "b", 1),)),
        Match("s", "two", (PropertyChange(False, "a", REMOVED),)),
    ]
    assert not selection.failures


def test_an_action_takes_parameters() -> None:
    """Of the same text each rule has its own; one without a value is refused."""
    text = "SET b = @value"
    made = [
        Rule(name=name, filter=TrueFilter(), action=text, action_parameters=(("@value", value),))
        for name, value in (("one", 1), ("true", True), ("text", "x"))
    ]
    selection = RuleSet.of({"s": made}, new_id=lambda: GUID).select(message())
    values = [change.value for match in selection.matches for change in match.changes]
    assert [(type(each), each) for each in values] == [(int, 1), (bool, True), (str, "x")]
    with pytest.raises(InvalidRule, match="@value at character 9 has no value"):
        compile_action(text, lambda: GUID)


def test_an_action_that_fails_leaves_the_other_copies() -> None:
    """Its own copy was due, so the failure is told."""
    made = [
        Rule(name="plain", filter=TrueFilter()),
        Rule(name="bad", filter=TrueFilter(), action="SET a = 'x'"),
    ]
    selection = RuleSet.of({"s": made}, new_id=lambda: GUID).select(message(a=1))
    assert selection.matches == [Match("s")]
    (failure,) = selection.failures
    assert failure.rule_name == "bad"


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("SET n = 'x'", "SET cannot make a string a int"),
        ("SET n = '1_0'", "SET cannot make"),
        ("SET n = newid()", "SET cannot make a Guid"),
        ("SET n = 1E300", "SET cannot make"),
        ("SET sys.Colour = 'x'", "There is no system property 'colour'"),
        ("REMOVE sys.Colour", "There is no system property"),
        ("SET x = sys.Colour", "There is no system property"),
        ("SET sys.SequenceNumber = 5", "SequenceNumber cannot be changed"),
        ("SET sys.MessageId = p('long')", "MessageId has at most 128 characters"),
        ("SET sys.TimeToLive = 5", "SET cannot make a number a timedelta"),
        ("SET n = n / 0", "divided by zero"),
    ],
)
def test_an_action_fails(action: str, why: str) -> None:
    """It fails for a value that does not convert, and for a system property that it may not set."""
    assert why in failing(action, message(n=1, long="x" * 129))


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("SET", "a property is expected"),
        ("SET a", "'=' is expected"),
        ("SET a = ", "a value or a condition"),
        ("SET a = b = c", "SET or REMOVE is expected"),
        ("SET a = (b = c)", "A condition stands where a value"),
        ("SET a = 1, b = 2", "SET or REMOVE"),
        ("DELETE a", "'DELETE' at character 1: SET or REMOVE"),
        ("REMOVE a = 1", "SET or REMOVE"),
        (";", "SET or REMOVE"),
        ("SET a=1 " * 33, "at most 32 statements"),
        ("SET a = '" + "x" * 1020 + "'", "1030 characters"),
    ],
)
def test_an_action_is_refused(action: str, why: str) -> None:
    """A text outside the grammar is refused with its place."""
    with pytest.raises(InvalidRule, match=why):
        compile_action(action, lambda: GUID)


def test_what_rabbitmq_cannot_hold_fails_the_action() -> None:
    """Too many bytes in a basic property, or in all properties together."""
    for name, value in (
        ("label", "\u00e9" * 128),
        ("label", "x" * 256),
        ("contenttype", "\u00e9"),
        ("replyto", headers.DIRECT_REPLY_TO),
    ):
        change = PropertyChange(True, name, value)
        with pytest.raises(FilterException, match="to what RabbitMQ cannot hold"):
            changed_copy(sent(), "r", [change], properties_bytes_max=BYTES_MAX)
    big = PropertyChange(False, "big", "x" * 1000)
    with pytest.raises(FilterException, match="1000 at most"):
        changed_copy(sent(), "r", [big], properties_bytes_max=1000)


def test_what_filters_see_of_dotnets_types() -> None:
    """TimeSpan, DateTimeOffset and Uri are values, decimals and lists are only there."""
    ticks = 621_355_968_000_000_000 + 10_000_000
    item = sent(
        span=Described(Symbol("com.microsoft:timespan"), 10_000_000),
        offset=Described(Symbol("com.microsoft:datetime-offset"), ticks),
        uri=Described(Symbol("com.microsoft:uri"), "http://x"),
        stamp=Timestamp(1_000),
        many=[1],
    )
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert {name: value for name, value in view_of(item).user.items() if name != "many"} == {
        "span": timedelta(seconds=1),
        "offset": second,
        "uri": "http://x",
        "stamp": second,
    }
    assert view_of(item).user["many"] == [1]
