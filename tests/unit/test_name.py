"""Names of entities: what Service Bus takes, and what RabbitMQ's objects are called for it."""

from __future__ import annotations

import hashlib
import re

import pytest

from bridge.model import entity as model
from bridge.model.errors import ArgumentError
from bridge.model.name import SHORT_NAME_LENGTH_MAX, check_entity_name, parse_path
from bridge.topology import names
from bridge.topology.policy import patterns


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


@pytest.mark.parametrize("name", ["", "~a", "-a", ".a", "/a", "a/", "a//b", "a b", "a$b", "a:b"])
def test_a_name_that_azure_refuses_is_refused(name: str) -> None:
    """The error says which characters there may be, and at which place."""
    with pytest.raises(ArgumentError, match="letters, digits"):
        check_entity_name(name)
    with pytest.raises(ArgumentError):
        check_entity_name("a" * 51, length_max=SHORT_NAME_LENGTH_MAX)


def test_a_tilde_is_a_plus_in_rabbitmq() -> None:
    """A binding with '~' in its key breaks the management API of 3.10; no name has a '+'."""
    assert names.active_queue("Contoso~Orders") == "contoso+orders"
    (pattern,) = patterns([names.active_queue("contoso~orders")])
    assert re.search(pattern, "contoso+orders")
    assert not re.search(pattern, "contosoorders")
    with pytest.raises(ArgumentError):
        check_entity_name("contoso+orders")
    long = "a" * 250
    assert (
        names.resource_base(long)
        == "a" * 189 + "~" + hashlib.sha256(long.encode()).hexdigest()[:24]
    )
