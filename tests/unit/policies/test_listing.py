"""Lists that hold one kind of entity each: nobody knows what is in the others."""

from __future__ import annotations

import json

from bridge.model import entity as model
from policies.readers import Reading, read_all
from policies.readers.several import joined
from tests.unit.policies.test_xml_readers import entry

_NAMESPACE = "/subscriptions/0/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/ns"


def rows(*paths: str) -> list[dict[str, object]]:
    """Entities as `az` lists them."""
    return [{"id": f"{_NAMESPACE}/{path}", "name": path.rpartition("/")[2]} for path in paths]


QUEUES = rows("queues/a", "queues/b")
TOPICS = rows("topics/T")
SUBSCRIPTIONS = rows("topics/T/subscriptions/s")


def gaps(*documents: object) -> str:
    """What keeps these files from being a namespace."""
    given = [(f"{number}.json", json.dumps(each)) for number, each in enumerate(documents)]
    return "\n".join(read_all(given, form="az").gaps)


def test_a_list_of_queues_says_nothing_about_topics() -> None:
    """Nor does a list of topics about their subscriptions, or what was shown alone."""
    assert "no list of the topics" in gaps(QUEUES)
    assert "no list of the queues" in gaps(TOPICS, SUBSCRIPTIONS)
    assert "no list of the subscriptions of 'T'" in gaps(QUEUES, TOPICS)
    assert "no list of the queues" in gaps(QUEUES[0], TOPICS, SUBSCRIPTIONS)
    assert "no list of the topics" in gaps(QUEUES, SUBSCRIPTIONS)


def test_lists_of_every_kind_are_the_whole_namespace() -> None:
    """In files of their own, in one array, or as pages of the REST API."""
    assert not gaps(QUEUES, TOPICS, SUBSCRIPTIONS)
    assert not gaps([QUEUES, TOPICS, SUBSCRIPTIONS])
    assert not gaps({"value": QUEUES}, {"value": TOPICS}, {"value": SUBSCRIPTIONS})


def test_an_empty_list_stands_for_one_kind_that_is_missing() -> None:
    """The list does not say its kind; a topic may have no subscriptions."""
    assert not gaps(QUEUES, [])
    assert not gaps([QUEUES, []])
    assert not gaps([QUEUES, TOPICS, {"value": []}])
    assert "the subscriptions of 'T'" in gaps(TOPICS, [])
    bare = [{**TOPICS[0], "subscriptionCount": 0}]
    assert not gaps(QUEUES, bare)


def test_a_list_that_goes_on_is_not_whole() -> None:
    """The entities of the next page are named as missing."""
    page = {"value": QUEUES, "nextLink": "https://example.org/2"}

    assert "goes on at its nextLink" in gaps(page, TOPICS, SUBSCRIPTIONS)


def feed(path: str, *entries: str, title: str = "", link: str = "") -> str:
    """A feed of ATOM, as the management API answers."""
    return (
        f'<feed xmlns="http://www.w3.org/2005/Atom"><title>{title}</title>'
        f"<id>https://ns/{path}?api-version=2021-05</id>{link}{''.join(entries)}</feed>"
    )


def xml_gaps(*texts: str) -> str:
    """What keeps these files of XML from being a namespace."""
    given = [(f"{number}.xml", each) for number, each in enumerate(texts)]
    return "\n".join(read_all(given).gaps)


QUEUE_FEED = feed("$Resources/queues", entry("a", "QueueDescription", ""))
TOPIC_FEED = feed("$Resources/topics", entry("T", "TopicDescription", ""))
SUBSCRIPTION_FEED = feed(
    "T/Subscriptions", entry("T/Subscriptions/s", "SubscriptionDescription", "")
)


def test_a_feed_of_queues_says_nothing_about_topics() -> None:
    """Nor does an entry that was asked for alone; whether in one file or in several."""
    assert "no list of the topics" in xml_gaps(QUEUE_FEED)
    assert "no list of the queues" in xml_gaps(TOPIC_FEED, SUBSCRIPTION_FEED)
    assert "no list of the subscriptions of 'T'" in xml_gaps(QUEUE_FEED + TOPIC_FEED)
    alone = entry("a", "QueueDescription", "")
    assert "no list of the queues" in xml_gaps(alone + TOPIC_FEED + SUBSCRIPTION_FEED)
    assert not xml_gaps(QUEUE_FEED + TOPIC_FEED + SUBSCRIPTION_FEED)
    assert not xml_gaps(QUEUE_FEED, TOPIC_FEED, SUBSCRIPTION_FEED)


def test_an_empty_feed_says_by_its_address_or_title_what_there_is_none_of() -> None:
    """A topic may count its subscriptions; a feed of which nothing is known stands for one kind."""
    assert not xml_gaps(QUEUE_FEED + feed("$Resources/topics"))
    assert not xml_gaps(QUEUE_FEED + feed("", title="Topics"))
    assert not xml_gaps(QUEUE_FEED + TOPIC_FEED + feed("T/Subscriptions"))
    assert "no list of the topics" in xml_gaps(QUEUE_FEED + feed("$Resources/queues"))
    assert "no list of the topics" in xml_gaps(QUEUE_FEED + feed("T/Subscriptions/s/Rules"))
    assert not xml_gaps(QUEUE_FEED + feed(""))
    count = "<SubscriptionCount>0</SubscriptionCount>"
    bare = feed("$Resources/topics", entry("T", "TopicDescription", count))
    assert not xml_gaps(QUEUE_FEED + bare)


def test_a_feed_that_goes_on_is_not_whole() -> None:
    """The management API answers a hundred entries at a time."""
    link = '<link rel="next" href="https://ns/$Resources/queues?$skip=100"/>'
    page = feed("$Resources/queues", entry("a", "QueueDescription", ""), link=link)

    assert "The feed goes on at its next link." in xml_gaps(page + feed("$Resources/topics"))


def test_an_export_of_queues_alone_says_nothing_about_topics() -> None:
    """Service Bus Explorer exports a part, too."""
    queues = "<Queues><Queue><Path>a</Path></Queue></Queues>"

    assert "no list of the topics" in xml_gaps(f"<Entities>{queues}</Entities>")
    assert not xml_gaps(f"<Entities>{queues}<Topics/></Entities>")


def test_an_access_rule_that_two_inputs_name_in_two_cases_is_one() -> None:
    """The later input's, as where both write its name alike."""

    def of(name: str, key: str) -> Reading:
        right = frozenset({model.Right.LISTEN})
        rule = model.AuthorizationRule(name=name, primary_key=key, rights=right)
        return Reading(namespace=model.Namespace(authorization_rules=(rule,)))

    found = joined([("one", of("App", "first")), ("two", of("app", "second"))])

    (rule,) = found.namespace.authorization_rules
    assert (rule.name, rule.primary_key) == ("app", "second")
