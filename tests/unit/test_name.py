"""Names of entities: what Service Bus takes, and what RabbitMQ's objects are called for it."""

from __future__ import annotations

import hashlib
import re

import pytest

from bridge.model import entity as model
from bridge.model.errors import ArgumentError
from bridge.model.name import SHORT_NAME_LENGTH_MAX, check_entity_name, parse_path
from bridge.topology import names
from bridge.topology.patterns import patterns


@pytest.mark.parametrize(
    "name",
    [
        "contoso.orders~orderplaced",  # MassTransit's topic of a message type
        "contoso~fault--contoso~orderplaced--",  # and of a generic one
        "orders_error",
        "a",
        "9",
        "a/b.c-d_e~f",
    ],
)
def test_a_queues_or_topics_name_may_be_what_azure_takes(name: str) -> None:
    """Letters, digits, '.', '-', '_', '~' and '/': the names that libraries make are legal."""
    assert check_entity_name(name) == name
    assert parse_path(f"sb://host/{name}/$DeadLetterQueue").entity == name
    assert model.Queue(name=name).name == model.Topic(name=name).name == name


@pytest.mark.parametrize("name", ["_audit", "audit_", "_", "_a-b.c_"])
def test_a_subscriptions_name_may_have_an_underscore_at_its_ends(name: str) -> None:
    """Its first and its last character are a letter, a digit or '_'."""
    subscription = model.Subscription(topic="events", name=name)

    assert parse_path(subscription.path).entity == f"events/Subscriptions/{name}"


def test_a_subscription_of_one_jms_client_ends_with_its_id() -> None:
    """As Azure writes it; nothing else has a '$'."""
    subscription = model.Subscription(topic="events", name="audit$app-1$D")

    assert parse_path(f"{subscription.path}/$DeadLetterQueue").entity == subscription.path
    for name in ("audit$app-1", "audit$$D", "$app-1$D", "a$b$c$D", "audit$a b$D", "audit$a/b$D"):
        with pytest.raises(ArgumentError):
            model.Subscription(topic="events", name=name)
    with pytest.raises(ArgumentError, match="1 to 100"):
        model.Subscription(topic="events", name="audit$" + "a" * 101 + "$D")


def test_the_name_of_a_queue_or_topic_has_no_client() -> None:
    """Subscriptions alone belong to clients."""
    with pytest.raises(ArgumentError):
        model.Queue(name="audit$app-1$D")


@pytest.mark.parametrize("name", ["", "~a", "-a", ".a", "/a", "a/", "a//b", "a b", "a$b", "a:b"])
def test_a_name_that_azure_refuses_is_refused(name: str) -> None:
    """The error says which characters there may be, and at which place."""
    with pytest.raises(ArgumentError, match="letters, digits"):
        check_entity_name(name)
    with pytest.raises(ArgumentError):
        check_entity_name("a" * 51, length_max=SHORT_NAME_LENGTH_MAX)


@pytest.mark.parametrize("name", ["$Default", "$default", "$DEFAULT", "Contoso.OrderPlaced", "_x"])
def test_a_rules_name_may_be_the_default_rules_in_any_case(name: str) -> None:
    """NServiceBus makes its subscriptions with a rule `$default`; the spelling is kept."""
    rule = model.Rule(name=name, filter=model.FalseFilter())
    subscription = model.Subscription(topic="events", name="audit", rules=(rule,))

    assert rule.name == name
    assert subscription.rule(name.swapcase()) is rule
    assert subscription.rule(name + "x") is None


@pytest.mark.parametrize("name", ["", "$Defaults", "$other", "a b", "x" * 51])
def test_the_error_of_a_rules_name_speaks_of_a_rule(name: str) -> None:
    """Not of an entity, which the client has not named."""
    with pytest.raises(ArgumentError, match=r"^The rule name '.*' is not valid: 1 to 50 letters"):
        model.Rule(name=name, filter=model.TrueFilter())


def test_a_name_with_a_tilde_is_taken_by_an_exact_pattern() -> None:
    """A policy for it takes it, and nothing that is called similarly."""
    (pattern,) = patterns(["contoso~orders", "contoso/orders"])

    assert re.search(pattern, names.active_queue("Contoso~Orders"))
    assert not re.search(pattern, "contoso-orders")


def test_a_name_that_looks_like_a_cut_one_shares_no_object_with_it() -> None:
    """A long name is cut to a digest behind a '~', which is legal in a name, too."""
    long = "a" * 250
    twin = names.resource_base(long)

    assert twin == "a" * 189 + "~" + hashlib.sha256(long.encode()).hexdigest()[:24]
    assert names.resource_base(twin) != twin
    assert len(names.resource_base(twin)) == len(twin)
    assert names.resource_base("a~" + "0" * 24) == "a~" + "0" * 24
