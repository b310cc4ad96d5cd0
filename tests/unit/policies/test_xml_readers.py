"""ATOM feeds of a live namespace, and Service Bus Explorer's export."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bridge.model import entity as model
from policies.errors import ReadError
from policies.readers import explorer, read, xmltext

CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"


def entry(path: str, kind: str, body: str) -> str:
    """Return an ATOM entry."""
    return (
        f'<entry xmlns="http://www.w3.org/2005/Atom"><id>https://ns/{path}?api-version=2021-05</id>'
        f'<title>{path}</title><content type="application/xml"><{kind} xmlns="{CONNECT}" '
        f'xmlns:i="{INSTANCE}">{body}</{kind}></content></entry>'
    )


def rule(body: str) -> str:
    """Return a subscription and a rule of it, one document after the other."""
    subscription = entry("t", "TopicDescription", "") + entry(
        "t/Subscriptions/s", "SubscriptionDescription", ""
    )
    return f"{subscription}\n{entry('t/Subscriptions/s/Rules/r', 'RuleDescription', body)}"


def refused(text: str) -> str:
    """Return why a feed is refused."""
    with pytest.raises(ReadError) as caught:
        read(text, "feed.xml")
    return str(caught.value)


def test_an_answer_of_the_admin_api_is_read() -> None:
    """An entry as the service (or the bridge) answers a PUT."""
    body = (
        "<LockDuration>PT30S</LockDuration><RequiresSession>true</RequiresSession>"
        "<MaxDeliveryCount>5</MaxDeliveryCount><SizeInBytes>123</SizeInBytes>"
        "<CountDetails xmlns:d2p1='http://schemas.microsoft.com/netservices/2011/06/servicebus'>"
        "<d2p1:ActiveMessageCount>4</d2p1:ActiveMessageCount></CountDetails>"
        "<AutoDeleteOnIdle>P10675199DT2H48M5.477539S</AutoDeleteOnIdle>"
        "<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>"
    )

    reading = read(entry("q1", "QueueDescription", body), "entry.xml")

    queue = model.Queue(
        name="q1", lock_duration_ms=30_000, requires_session=True, max_delivery_count=5
    )
    assert (queue,) == reading.namespace.queues
    assert reading.findings == ()


def test_every_type_of_a_filter_value_is_read() -> None:
    """The seven types that Service Bus writes."""
    values = {
        "string": (" as it is ", " as it is "),
        "int": ("3", 3),
        "long": ("-9", -9),
        "boolean": ("true", True),
        "double": ("2.5", 2.5),
        "dateTime": ("2026-11-02T09:14:03Z", datetime(2026, 11, 2, 9, 14, 3, tzinfo=UTC)),
        "duration": ("PT1M", timedelta(minutes=1)),
    }
    pairs = "".join(
        f"<KeyValueOfstringanyType><Key>{kind}</Key>"
        f'<Value i:type="d6p1:{kind}">{text}</Value></KeyValueOfstringanyType>'
        for kind, (text, _) in values.items()
    )
    body = f'<Filter i:type="CorrelationFilter"><Properties>{pairs}</Properties></Filter>'

    reading = read(rule(body), "feed.xml")

    (found,) = reading.namespace.topics[0].subscriptions[0].rules
    assert (
        model.CorrelationFilter(
            properties=tuple((kind, value) for kind, (_, value) in values.items())
        )
        == found.filter
    )


def test_entities_in_paths_with_slashes_are_found_from_the_right() -> None:
    """`a/b/subscriptions/s/rules/r` is rule r of subscription s of topic a/b."""
    text = entry("a/b", "TopicDescription", "") + entry(
        "a%2Fb/subscriptions/s", "SubscriptionDescription", ""
    )

    reading = read(text, "feed.xml")

    assert reading.namespace.topics[0].subscriptions[0].path == "a/b/Subscriptions/s"


def test_subscriptions_without_their_rules_are_said() -> None:
    """The rules are in a feed of their own, which the input may lack."""
    text = entry("t", "TopicDescription", "") + entry(
        "t/subscriptions/s", "SubscriptionDescription", "<IsClientAffine>true</IsClientAffine>"
    )

    reading = read(text, "feed.xml")

    assert [(each.property, each.grade) for each in reading.findings] == [
        ("IsClientAffine", "lost"),
        ("Rules", "approximate"),
    ]


def test_a_rule_without_its_subscription_is_said() -> None:
    """Subscription and topic are taken with Azure's defaults."""
    text = entry("t/subscriptions/s/rules/r", "RuleDescription", "")

    reading = read(text, "feed.xml")

    assert [each.property for each in reading.findings] == ["Subscription", "Topic"]


def test_authorization_rules_are_read_with_their_keys() -> None:
    """Names, rights and both keys."""
    body = (
        '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        "<Rights><AccessRights>Send</AccessRights></Rights><KeyName>app</KeyName>"
        "<PrimaryKey>a=</PrimaryKey><SecondaryKey>b=</SecondaryKey></AuthorizationRule>"
        "</AuthorizationRules>"
    )

    (found,) = (
        read(entry("q", "QueueDescription", body), "x").namespace.queues[0].authorization_rules
    )

    assert ("app", "a=", "b=", {model.Right.SEND}) == (
        found.name,
        found.primary_key,
        found.secondary_key,
        found.rights,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<a><b></a>", "feed.xml: line 1: This is no well-formed XML: mismatched tag. Mend the "
         "XML."),
        ('<?xml version="1.0"?>\n<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
         "feed.xml: line 2: The XML has a document type declaration. Remove it; no entity is "
         "expanded."),
        (entry("q", "QueueDescription", "<LockDuration>PT9M</LockDuration>"),
         "feed.xml: line 1, /entry/content/QueueDescription/LockDuration: Queue 'q': LockDuration "
         "is PT9M; Service Bus takes PT5S to PT5M."),
        ('<entry xmlns="http://www.w3.org/2005/Atom"/>',
         "feed.xml: line 1, /entry: An entry without a description. Remove it, or ask for it "
         "again."),
        (entry("r", "RuleDescription", ""),
         "feed.xml: line 1, /entry: The entry of a rule has no id that says where it belongs. Use "
         "the answer of a GET; its id is the URL of the rule."),
        (entry("s", "SubscriptionDescription", ""),
         "feed.xml: line 1, /entry: The entry of a subscription has no id that says where it "
         "belongs. Use the answer of a GET; its id is the URL of the subscription."),
        (rule('<Filter i:type="OddFilter"/>'),
         "feed.xml: line 2, /entry/content/RuleDescription/Filter: Subscription "
         "'t/Subscriptions/s', rule 'r': its filter is of the type 'OddFilter'. It is TrueFilter, "
         "FalseFilter, SqlFilter or CorrelationFilter."),
        (rule('<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k'
              '</Key><Value i:type="d6p1:int">x</Value></KeyValueOfstringanyType></Properties>'
              "<Label>l</Label></Filter>"),
         "feed.xml: line 2, /entry/content/RuleDescription/Filter/Properties/"
         "KeyValueOfstringanyType/Value: Subscription 't/Subscriptions/s', rule 'r': the value "
         "'x' of 'k' is no int; it is a whole number."),
    ],
)  # fmt: skip
def test_bad_feeds_are_refused_with_place_and_remedy(text: str, message: str) -> None:
    """Malformed XML, values that Service Bus refuses, entries of nothing."""
    assert message == refused(text)


def test_unknown_elements_are_findings() -> None:
    """A newer service may describe more."""
    reading = read(entry("q", "QueueDescription", "<Shiny>1</Shiny>"), "feed.xml")

    assert [(f.entity, f.property, f.grade) for f in reading.findings] == [("q", "Shiny", "lost")]


def export(body: str) -> str:
    """Return an export of Service Bus Explorer."""
    return f'<Entities xmlns="{explorer.NAMESPACE}" serviceBusNamespace="ns">{body}</Entities>'


def test_what_the_export_itself_loses_is_said() -> None:
    """Filters that are written as nothing, sizes that are written as 1 GB, other services."""
    rules = "<Rules><Rule><Filter /><Name>all</Name></Rule></Rules>"
    subscription = f"<Subscription><Name>s</Name>{rules}</Subscription>"
    text = export(
        "<Queues><Queue><Path>q</Path><EnablePartitioning>True</EnablePartitioning></Queue>"
        f"</Queues><Topics><Topic><Path>t</Path><Subscriptions>{subscription}</Subscriptions>"
        "</Topic></Topics><EventHubs><EventHub><Path>hub</Path></EventHub></EventHubs>"
    )

    reading = read(text, "export.xml")

    assert [(each.entity, each.property) for each in reading.findings] == [
        ("q", "MaxSizeInMegabytes"),
        ("t/Subscriptions/s", "Rule all"),
        ("hub", "EventHubs"),
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<Queues><Queue/></Queues>", "/Entities/Queues/Queue: A Queue has no Path. Give it one."),
        ("<Queues><Queue><Path>q</Path><LockDuration>1.00:00:00</LockDuration></Queue></Queues>",
         "Queue 'q': LockDuration is P1D; Service Bus takes PT5S to PT5M."),
        ("<Topics><Topic><Path>t</Path><Subscriptions><Subscription/></Subscriptions></Topic>"
         "</Topics>", "A Subscription has no Name. Give it one."),
    ],
)  # fmt: skip
def test_bad_exports_are_refused(body: str, message: str) -> None:
    """With path and remedy."""
    with pytest.raises(ReadError) as caught:
        read(export(body), "export.xml")

    assert message in str(caught.value)


def test_lines_stay_right_behind_a_declaration() -> None:
    """Documents that follow one another keep the lines of the file."""
    roots = xmltext.parse('<?xml version="1.0"?>\n<a/>\n<?xml\nversion="1.0"?>\n<b/>', "x")

    assert [(root.name, root.line) for root in roots] == [("a", 2), ("b", 5)]


@pytest.mark.parametrize(
    ("name", "said"), [("$Default", []), ("$default", []), ("other", ["Rule other"])]
)
def test_the_default_rule_of_an_export_is_a_true_filter(name: str, said: list[str]) -> None:
    """Service Bus Explorer writes True and False filters alike: of another rule that is said."""
    rule = f"<Rules><Rule><Name>{name}</Name></Rule></Rules>"
    text = (
        f'<Entities xmlns="{explorer.NAMESPACE}"><Topics><Topic><Path>t</Path><Subscriptions>'
        f"<Subscription><Name>s</Name>{rule}</Subscription></Subscriptions></Topic></Topics>"
        "</Entities>"
    )

    reading = read(text, "export.xml")

    (found,) = reading.namespace.topics[0].subscriptions[0].rules
    assert found == model.Rule(name=name, filter=model.TrueFilter())
    assert said == [each.property for each in reading.findings]
