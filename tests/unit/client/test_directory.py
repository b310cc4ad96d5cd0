"""Which bridge a client asks."""

from __future__ import annotations

from typing import Any, cast

from bridge.client.core.directory import KnownDefinitions
from bridge.client.core.publisher import TIMEOUT_S, Publisher
from bridge.client.core.wire import Delivery
from bridge.client.exceptions import OperationTimeoutError
from bridge.wire.basic import Properties, text
from bridge.wire.reply import encode_found
from tests.fixtures.scripted_wire import ScriptedChannel, ScriptedWire


def answer(channel: ScriptedChannel, number: int, content: bytes) -> None:
    """A bridge answers a client's question of that number."""
    assert channel.deliver is not None
    properties = Properties(correlation_id=str(number)).encode()
    channel.deliver(Delivery(1, False, "", properties, encode_found(content)))


def test_a_bridge_that_does_not_answer_is_not_asked_again() -> None:
    """It may hang while others do not: the next question is for whoever answers first."""
    wire = ScriptedWire()
    any_wire = cast(Any, wire)
    directory = KnownDefinitions(any_wire, Publisher(any_wire), lambda path: ())
    answers: list[bytes | Exception] = []
    directory.ask({"do": text("one")}, answers.append)
    (channel,) = wire.channels
    answer(channel, 1, b"hangs")
    wire.advance(TIMEOUT_S)
    directory.ask({"do": text("two")}, answers.append)
    answer(channel, 3, b"works")
    answer(channel, 4, b"done")
    assert [key for key, *_ in channel.published] == ["", "hangs", "", "works"]
    assert isinstance(answers[0], OperationTimeoutError)
    assert answers[1:] == [b"done"]
