"""Routes of a relay: chosen by filters, expanded from stars, and searched for circles."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model.filters.errors import FilterException
from bridge.model.filters.rules import check_rule, compile_filter
from bridge.model.rule import Rule, TrueFilter
from bridge.model.rules import EXPRESSION_LENGTH_MAX, sql
from bridge.relay.inspection.inspection import same_namespaces
from bridge.relay.plan.choice import chain, choice
from bridge.relay.plan.circles import Forward, circles, keeps_out, rule_against
from bridge.relay.plan.expansion import expanded
from bridge.relay.plan.relayed_message import MARKER
from bridge.relay.plan.route import RelayFile, Route
from bridge.relay.plan.side import Side
from bridge.relay.plan.source_identity import LOCK_CHARACTERS_MAX, lock_name, source_name
from bridge.remote.message import RemoteMessage
from bridge.remote.message_view import RemoteMessageView
from bridge.wire.relay_source import SOURCE_CHARACTERS_MAX
from tests.fixtures.examples import examples
from tests.unit.relay.files import file_of, route

COLOURS = file_of(
    route("azure/a", "local/red", name='"red"', filter="\"colour = 'red'\"", **{"else": '"blue"'})
    + route(
        "azure/a", "local/blue", name='"blue"', filter="\"colour = 'blue'\"",
        **{"else": '"dead-letter"'},
    )
)  # fmt: skip


def coloured(colour: object) -> RemoteMessage:
    """Return a message with a colour."""
    return RemoteMessage.of(data=b"x", application_properties={"colour": colour})


@pytest.mark.parametrize(
    ("colour", "expected"), [("red", "red"), ("blue", "blue"), ("green", "dead-letter")]
)
def test_the_first_filter_that_takes_a_message_has_it(colour: str, expected: str) -> None:
    """`else` of the last one says what becomes of what none takes."""
    (first,) = COLOURS.first_routes

    found = choice(chain(COLOURS, first), coloured(colour))

    assert (found.name if isinstance(found, Route) else found) == expected


def test_what_no_filter_takes_is_completed_without_an_else() -> None:
    """As a subscription drops it."""
    file = file_of(route("azure/a", "local/a", filter="\"colour = 'red'\""))

    assert choice(chain(file, file.routes[0]), coloured("green")) == "complete"


def test_a_route_without_a_filter_takes_everything() -> None:
    """Nothing of the message is read."""
    file = file_of(route("azure/a", "local/a"))

    assert choice(chain(file, file.routes[0]), RemoteMessage(unread=b"x")) == file.routes[0]


def test_a_filter_that_fails_on_a_message_says_so() -> None:
    """Neither true nor false is right for it."""
    file = file_of(route("azure/a", "local/a", filter='"colour + 1 > 2"'))

    with pytest.raises(FilterException):
        choice(chain(file, file.routes[0]), coloured("red"))


def expansions(routes: str, *paths: str, control: str = "") -> list[tuple[str, str, str]]:
    """Return name, source and target of the routes for what is there in Azure."""
    file = file_of(routes)
    if control:
        file = RelayFile(file.sides, file.routes, file.routes[0].source)
    found = expanded(file, {"azure": paths})
    assert set(found.origins) == {each.name for each in found.file.routes}
    return [(each.name, str(each.source), str(each.target)) for each in found.file.routes]


SUBSCRIPTION = "events/Subscriptions/audit"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("orders-*", "*", [("orders-eu", "orders-eu"), ("Orders-us", "Orders-us")]),
        ("orders-*", "new-*-x", [("orders-eu", "new-eu-x"), ("Orders-us", "new-us-x")]),
        ("orders-*", "all", [("orders-eu", "all"), ("Orders-us", "all")]),
        ("*-eu", "*", [("orders-eu", "orders-eu")]),
        ("*", "*", [("orders-eu", "orders-eu"), ("Orders-us", "Orders-us"), ("sales", "sales")]),
        ("*/$DeadLetterQueue", "dead-*", [
            ("orders-eu/$DeadLetterQueue", "dead-orders-eu"),
            ("Orders-us/$DeadLetterQueue", "dead-Orders-us"),
            ("sales/$DeadLetterQueue", "dead-sales"),
        ]),
        ("events/Subscriptions/*", "*", [(SUBSCRIPTION, "audit")]),
        ("*/Subscriptions/audit", "*", [(SUBSCRIPTION, "events")]),
        ("*/Subscriptions/audit/$DeadLetterQueue", "x-*", [
            (f"{SUBSCRIPTION}/$DeadLetterQueue", "x-events"),
        ]),
        ("nothing-*", "*", []),
    ],
)  # fmt: skip
def test_a_star_stands_for_what_is_there(
    source: str, target: str, expected: list[tuple[str, str]]
) -> None:
    """Queues for queues, subscriptions for subscriptions, in any case."""
    text = route(f"azure/{source}", f"local/{target}", name='"r"')

    found = expansions(text, "orders-eu", "Orders-us", "sales", SUBSCRIPTION)

    pairs = {
        (each_source.removeprefix("azure/"), to.removeprefix("local/"))
        for _, each_source, to in found
    }
    assert pairs == set(expected)
    assert all(name.startswith("r[") and name.endswith("]") for name, _, _ in found)


def test_an_entity_that_a_route_names_is_not_among_those_of_a_star() -> None:
    """In any case of its name; and the control queue never is."""
    text = route("azure/Orders", "local/special", name='"one"') + route("azure/*", "local/*")

    found = expansions(text, "orders", "sales", control="azure/orders")

    assert [each[1:] for each in found] == [
        ("azure/Orders", "local/special"),
        ("azure/sales", "local/sales"),
    ]


def test_a_chain_of_filters_is_expanded_as_a_whole() -> None:
    """Each entity has its own chain."""
    file = file_of(
        route("azure/a*", "local/*", name='"red"', filter='"1=0"', **{"else": '"rest"'})
        + route("azure/a*", "local/rest-*", name='"rest"')
    )

    found = expanded(file, {"azure": ["a1", "a2"]})

    assert [each.name for each in found.file.first_routes] == ["red[a1]", "red[a2]"]
    assert [each.name for each in chain(found.file, found.file.named("red[a2]"))] == [
        "red[a2]",
        "rest[a2]",
    ]
    assert found.origins["rest[a1]"] == "rest"


def test_two_stars_share_no_entity() -> None:
    """The first has it; the other is named, with all that it leads to."""
    file = file_of(
        route("azure/a*", "local/*", name='"one"')
        + route("azure/*b", "local/*", name='"two"', filter='"1=0"', **{"else": '"rest"'})
        + route("azure/*b", "local/rest", name='"rest"')
    )

    found = expanded(file, {"azure": ["ab", "cb"]})

    assert [each.name for each in found.file.routes] == ["one[ab]", "two[cb]", "rest[cb]"]
    assert found.shared == {"azure/ab": ("one", "two")}


TOPICS = route("azure/events/Subscriptions/out", "local/Events") + route(
    "local/events/Subscriptions/out", "azure/events"
)


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (route("azure/a", "local/a") + route("local/b", "azure/b"), []),
        (route("azure/a", "local/a") + route("local/A", "azure/a"), [False]),
        (route("azure/a", "local/b") + route("local/b", "azure/a"), [False]),
        (TOPICS, [True]),
        (
            route("azure/events/Subscriptions/out", "local/q") + route("local/q", "azure/events"),
            [False],
        ),
        (route("azure/a/$DeadLetterQueue", "local/a") + route("local/a", "azure/a"), []),
        (route("azure/a", "local/a") + route("local/a/$DeadLetterQueue", "azure/a"), []),
        (
            route("azure/events/Subscriptions/one", "local/events")
            + route("azure/events/Subscriptions/two", "local/events")
            + route("local/events/Subscriptions/out", "azure/events"),
            [True, True],
        ),
    ],
)
def test_a_circle_is_found_and_of_what_it_is(routes: str, expected: list[bool]) -> None:
    """Through subscriptions alone it is one that ends by itself."""
    found = circles(file_of(routes).routes)

    assert [each.is_of_topics for each in found][: len(expected)] == expected[: len(found)]
    assert bool(found) == bool(expected)


def forward(source: str, target: str, by: str = "", *, dead: bool = False) -> Forward:
    """Return what the bridge of `SIDES` forwards."""
    id_ = "bridge.example.com:5672"
    return Forward(by or source, (id_, source), (id_, target), dead)


def test_a_circle_through_what_forwards_is_found() -> None:
    """Where that is known, over any number of entities; one is never made of it where none is."""
    routes = file_of(route("azure/a", "local/in") + route("local/out", "azure/a")).routes

    assert circles(routes) == []
    assert circles(routes, [forward("in", "b"), forward("b", "in")]) == []
    (found,) = circles(routes, [forward("in", "b"), forward("b", "out")])
    assert not found.is_of_topics
    assert str(found) == (
        "azure/a -> local/in, local/out -> azure/a, in forwards to b, b forwards to out"
    )


def test_a_circle_of_topics_with_a_forward_in_it_does_not_end_by_itself() -> None:
    """What is forwarded has no mark of where it was: it comes there twice."""
    routes = file_of(
        route("azure/events/Subscriptions/out", "local/events")
        + route("local/all/Subscriptions/out", "azure/events")
    ).routes

    assert circles(routes) == []
    (found,) = circles(routes, [forward("events", "all", "events/Subscriptions/s")])
    assert not found.is_of_topics
    assert not found.is_of_dead_letters
    assert str(found).endswith("events/Subscriptions/s forwards to all")


def test_a_circle_of_what_dies_in_it_is_found_apart() -> None:
    """Its dead letters go round; where the messages do, that is what is told."""
    routes = file_of(route("azure/a", "local/in") + route("local/out", "azure/a")).routes
    dead = forward("in", "out", dead=True)

    (found,) = circles(routes, [dead])
    assert found.is_of_dead_letters
    assert str(found).endswith("in forwards dead letters to out")
    (found,) = circles(routes, [dead, forward("in", "b"), forward("b", "out")])
    assert not found.is_of_dead_letters


IDS = st.text("ab._%/", min_size=1, max_size=4)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(IDS, max_size=4), IDS)
def test_the_rule_keeps_out_what_has_been_at_the_target(ids: list[str], target: str) -> None:
    """And nothing else, whatever is alike in the names."""
    rule = Rule(name="r", filter=sql(rule_against(target)))
    check_rule(rule)
    compiled = compile_filter(rule.filter, lambda: UUID(int=0))
    message = RemoteMessage.of(
        data=b"x", application_properties={MARKER: ";".join(ids)} if ids else {"a": 1}
    )

    takes = compiled.predicate(RemoteMessageView(message))

    assert bool(takes) == (target not in ids)
    assert len(rule_against("x" * 100)) <= EXPRESSION_LENGTH_MAX


def test_a_rule_stands_where_no_other_takes_what_it_keeps_out() -> None:
    """One rule of a subscription is enough for a message to come in."""
    rule = sql(f" {rule_against('a_b')}\n")

    assert keeps_out([rule], "a_b")
    assert keeps_out([], "a_b"), "nothing comes in"
    assert not keeps_out([rule], "other")
    assert not keeps_out([rule, TrueFilter()], "a_b")
    assert not keeps_out([rule, sql("colour = 'red'")], "a_b")


@pytest.mark.parametrize(
    ("first", "other", "is_found"),
    [
        (("shop", ""), ("SHOP", ""), True),
        (("shop", ""), ("shop:5671", ""), True),
        (("shop", ""), ("shop:5673", ""), False),
        (("shop", ""), ("shop-2", ""), False),
        (("shop", "one:7000"), ("shop", "two:7000"), False),
        (("shop", "one:7000"), ("shop", "one:7000"), True),
    ],
)
def test_one_namespace_by_two_ids_is_found(
    first: tuple[str, str], other: tuple[str, str], is_found: bool
) -> None:
    """Its circles lead from one id to the other, and so seem to be none."""
    sides = [
        Side(name=name, id=name, host=host, custom_endpoint_address=custom, entra=True)
        for name, (host, custom) in (("a", first), ("b", other))
    ]

    assert same_namespaces(sides) == ([(sides[0], sides[1])] if is_found else [])
    assert same_namespaces([replace(each, id="x") for each in sides]) == []


def test_the_name_of_a_source_has_no_case_and_its_sub_queue() -> None:
    """Two relays call one source alike."""
    assert source_name("Shop", "Orders") == "shop/orders"
    assert source_name("shop", "E/subscriptions/A/$deadletterqueue") == source_name(
        "shop", "e/Subscriptions/a/$DeadLetterQueue"
    )
    assert source_name("shop", "orders/$DeadLetterQueue") != source_name("shop", "orders")
    longest = source_name("i" * 100, f"{'q' * 260}/$DeadLetterQueue")
    assert len(longest) <= SOURCE_CHARACTERS_MAX


def test_one_lock_stands_for_one_source_whatever_its_length() -> None:
    """Two routes, or two files, that name it otherwise contend for it."""
    assert lock_name("Shop", "Orders") == lock_name("shop", "orders") == "shop/orders"
    longest = [lock_name("i" * 100, "q" * 259 + end) for end in "ab"]
    assert [len(each) for each in longest] == [LOCK_CHARACTERS_MAX] * 2
    assert longest[0] != longest[1]
