"""Lists of `az` that hold one kind of entity each: nobody knows what is in the others."""

from __future__ import annotations

import json

from policies.readers import read_all

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
    """It does not say for which; a topic may say that it has no subscriptions."""
    assert not gaps(QUEUES, [])
    assert not gaps([QUEUES, []])
    assert not gaps([QUEUES, TOPICS, {"value": []}])
    assert "the subscriptions of 'T'" in gaps(TOPICS, [])
    bare = [{**TOPICS[0], "subscriptionCount": 0}]
    assert not gaps(QUEUES, bare)


def test_a_list_that_goes_on_is_not_whole() -> None:
    """What its next page would hold is named."""
    page = {"value": QUEUES, "nextLink": "https://example.org/2"}

    assert "goes on at its nextLink" in gaps(page, TOPICS, SUBSCRIPTIONS)
