"""What a client settles is told to those who peek, from the first peek on, and not before."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bridge.client.core.publisher import Publisher
from bridge.client.core.settlements import ClientSettlements, SettledOfQueue
from bridge.client.core.wire import RefusedPublish, Unroutable
from bridge.topology import names
from bridge.wire.settled import Settled
from tests.fixtures.scripted_wire import ScriptedChannel, ScriptedWire

KNOWN = [1, 2, 3, 7]


def a_record() -> tuple[ScriptedWire, ClientSettlements, SettledOfQueue]:
    """What a client tells of a queue of which it remembers `KNOWN`."""
    wire = ScriptedWire()
    settlements = ClientSettlements(cast(Any, wire), Publisher(cast(Any, wire)))
    return wire, settlements, settlements.of("orders", lambda: iter(KNOWN))


def confirm(channel: ScriptedChannel, error: Exception | None = None) -> None:
    """Have the last publish confirmed, or refused."""
    channel.published[-1][2](error)


def told(channel: ScriptedChannel) -> list[list[tuple[int, int]]]:
    """The ranges of each entry."""
    assert {key for key, _, _ in channel.published} <= {names.settled("orders")}
    return [Settled.decode(body).active for _, body, _ in channel.published]


def test_nothing_is_told_while_nobody_has_peeked() -> None:
    """Not even a channel is opened."""
    wire, settlements, record = a_record()
    record.left(8)
    wire.advance(10)
    settlements.close()
    assert wire.channels == []


def test_what_is_remembered_is_told_first_and_then_what_leaves() -> None:
    """As ranges, in one entry each 50 ms at most."""
    wire, _, record = a_record()
    record.begin()
    record.begin()
    wire.advance(0.06)
    (channel,) = wire.channels
    assert told(channel) == [[(1, 3), (7, 7)]]
    confirm(channel)
    for number in range(100):
        record.left(100 - number)
        wire.advance(0.001)
    wire.advance(1)
    assert len(told(channel)) == 2, "it waits for the confirm"
    confirm(channel)
    wire.advance(1)
    confirm(channel)
    wire.advance(10)
    entries = told(channel)[1:]
    assert len(entries) == 2
    numbers = [n for ranges in entries for a, b in ranges for n in range(a, b + 1)]
    assert sorted(numbers) == list(range(1, 101))


def test_what_rabbitmq_refuses_is_told_again() -> None:
    """Until it is there."""
    wire, _, record = a_record()
    record.begin()
    wire.advance(0.1)
    (channel,) = wire.channels
    confirm(channel, RefusedPublish("no leader"))
    record.left(8)
    wire.advance(2)
    numbers = [n for ranges in told(channel)[1:] for a, b in ranges for n in range(a, b + 1)]
    assert sorted(numbers) == [*KNOWN, 8]


def test_nothing_is_told_of_an_entity_that_is_gone() -> None:
    """Its stream is, too."""
    wire, _, record = a_record()
    record.begin()
    wire.advance(0.1)
    (channel,) = wire.channels
    confirm(channel, Unroutable("no queue"))
    record.left(8)
    wire.advance(2)
    assert len(channel.published) == 1


def test_the_last_is_told_at_the_end() -> None:
    """Settlements just before the client closes are recorded."""
    wire, settlements, record = a_record()
    record.begin()
    wire.advance(0.1)
    confirm(wire.channels[0])
    record.left(9)
    settlements.close()
    assert told(wire.channels[0])[1:] == [[(9, 9)]]


def test_all_is_told_at_once_when_it_is_asked_for() -> None:
    """Also numbers that are not confirmed yet: they may not have arrived."""
    wire, settlements, record = a_record()
    record.begin()
    wire.advance(0.1)
    (channel,) = wire.channels
    record.left(9)
    answers: list[Exception | None] = []
    settlements.tell(record, answers.append)
    assert told(channel)[1:] == [[(1, 3), (7, 7), (9, 9)]]
    record.left(10)
    assert answers == []
    confirm(channel)
    assert answers == [None]
    channel.published[0][2](RefusedPublish("no leader"))
    settlements.tell(record, answers.append)
    assert told(channel)[2:] == [[(10, 10)]]
    confirm(channel)
    settlements.tell(record, answers.append)
    assert (len(told(channel)), answers) == (3, [None, None, None])


def counts(channel: ScriptedChannel) -> list[dict[int, int]]:
    """The counts of failed deliveries in each entry."""
    return [Settled.decode(body).failed for _, body, _ in channel.published]


def test_how_often_messages_have_failed_is_told_from_the_first_peek_on() -> None:
    """The last count of each that has not left, also what failed before that peek."""
    wire, _, record = a_record()
    for number, failures in ((8, 1), (9, 1), (8, 2)):
        record.failed(number, failures)
    record.left(9)
    wire.advance(10)
    assert wire.channels == []
    assert record.is_silent
    record.begin()
    wire.advance(0.06)
    (channel,) = wire.channels
    assert counts(channel) == [{8: 2}]
    record.failed(8, 3)
    confirm(channel)
    wire.advance(1)
    assert counts(channel)[1:] == [{8: 3}]
    confirm(channel, RefusedPublish("no leader"))
    wire.advance(2)
    assert counts(channel)[2:] == [{8: 3}]
    confirm(channel)
    wire.advance(10)
    assert len(channel.published) == 3


def test_counts_of_an_entity_that_was_made_anew_are_not_told() -> None:
    """Its numbers begin at 1 again."""
    wire, _, record = a_record()
    record.failed(8, 1)
    record.forget()
    record.begin()
    wire.advance(0.1)
    assert counts(wire.channels[0]) == [{}]


def test_what_is_remembered_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever asked hears when RabbitMQ has all of it, though another tells it beside."""
    monkeypatch.setattr("bridge.client.core.settlements.AT_ONCE", 3)
    wire, settlements, record = a_record()
    record.begin()
    answers: list[Exception | None] = []
    settlements.tell(record, answers.append)
    (channel,) = wire.channels
    assert told(channel) == [[(1, 3)]]
    wire.advance(0.1)
    assert told(channel)[1:] == [[(1, 3), (7, 7)]]
    channel.published[0][2](None)
    assert told(channel)[2:] == [[(7, 7)]]
    assert answers == []
    confirm(channel)
    assert answers == [None]
