"""The numbers that a message had are read from what relays write."""

from __future__ import annotations

import pytest

from bridge.operations.migration.former_numbers import former_numbers
from bridge.relay.plan.relayed_message import Relayed, RouteFacts, relayed
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Long


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("17", (17,)), ("17;42", (17, 42)), ("", ()), ("a", ()), ("17;", ()), (17, ()), (None, ())],
)
def test_each_hop_has_one_in_order(text: object, numbers: tuple[int, ...]) -> None:
    """A text that is no number is somebody else's."""
    properties = {} if text is None else {"repl-sequence": text}
    message = RemoteMessage.of(data=b"x", application_properties=properties)
    assert former_numbers(message) == numbers


def test_what_a_relay_writes_is_read() -> None:
    """Behind one hop and behind two."""
    facts = RouteFacts(source_mark="one/orders", target_mark="three/orders")
    first = relayed(annotated(RemoteMessage.of(data=b"x"), 17), facts, 1_000)
    assert isinstance(first, Relayed)
    assert former_numbers(first.message) == (17,)
    second = relayed(
        annotated(first.message, 42),
        RouteFacts(source_mark="two/orders", target_mark="three/orders"),
        1_000,
    )
    assert isinstance(second, Relayed)
    assert former_numbers(second.message) == (17, 42)


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
