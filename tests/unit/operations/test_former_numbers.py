"""The numbers that a message had are read from what relays write."""

from __future__ import annotations

import pytest

from bridge.operations.migration.former_numbers import FormerNumber, former_number
from bridge.relay.plan.relayed_message import Relayed, RouteFacts, relayed
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Long


@pytest.mark.parametrize(
    ("text", "number", "before"),
    [
        ("17", 17, ()),
        ("17;42", 42, (17,)),
        ("abc; 17", 17, ("abc",)),
        ("a", None, ()),
        ("", None, ()),
        ("17;", None, ()),
        (17, None, ()),
    ],
)
def test_each_hop_has_one_in_order(
    text: object, number: int | None, before: tuple[int | str, ...]
) -> None:
    """A text that is no number is somebody else's; it is shown where no number stands behind it."""
    found = former_number(of({"repl-sequence": text}))
    assert found is not None
    assert (found.number, found.before) == (number, before)
    assert (str(text) in found.says) == (number is None)


def test_a_message_that_was_sent_where_it_is_had_no_other_number() -> None:
    """It has no such property."""
    assert former_number(of({})) is None


def test_two_sources_that_gave_one_number_are_told_apart() -> None:
    """By the run that gave the new number, or by what a relay wrote."""
    for name, text, source in (
        ("busbridge-renumbered", "migrate-0-renumber/-;migrate-1-renumber/5", "migrate-1-renumber"),
        ("x-busbridge-relay", "one/orders;two/orders", "two/orders"),
    ):
        found = former_number(of({"repl-sequence": "17", name: text}))
        assert found is not None
        assert found.source == source


def of(properties: dict[str, object]) -> RemoteMessage:
    """A message with application properties."""
    return RemoteMessage.of(data=b"x", application_properties=properties)


def test_what_a_relay_writes_is_read() -> None:
    """Behind one hop and behind two."""
    facts = RouteFacts(source_mark="one/orders", target_mark="three/orders")
    first = relayed(annotated(RemoteMessage.of(data=b"x"), 17), facts, 1_000)
    assert isinstance(first, Relayed)
    assert former_number(first.message) == FormerNumber(number=17, source="one/orders")
    second = relayed(
        annotated(first.message, 42),
        RouteFacts(source_mark="two/orders", target_mark="three/orders"),
        1_000,
    )
    assert isinstance(second, Relayed)
    assert former_number(second.message) == FormerNumber(
        number=42, before=(17,), source="two/orders"
    )


def annotated(message: RemoteMessage, number: int) -> RemoteMessage:
    """A message as it is received with a number."""
    own = RemoteMessage.of(annotations={"x-opt-sequence-number": Long(number)})
    return RemoteMessage(
        message.header,
        b"",
        own.annotations,
        message.properties,
        message.application_properties,
        message.body,
        message.footer,
    )
