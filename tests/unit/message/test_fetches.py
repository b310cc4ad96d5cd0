"""The question whether a queue has ready messages: its answer overtakes no message here."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bridge.client.core.wire import Delivery
from bridge.machine.credit.effects import Open
from bridge.machine.credit.windows import Windows
from bridge.machine.queue.fate import Rules
from bridge.machine.queue.queue import QueueMachine
from bridge.machine.queue.settled import SettledMemory
from bridge.message.fetches import Fetches
from tests.fixtures.scripted_wire import ScriptedChannel


class Setup:
    """Fetches of a queue, with the window of a receiver that has asked for five messages.

    Attributes:
        told: what came, in this order: messages, and counts of ready messages.
    """

    def __init__(self, *, is_apart: bool) -> None:
        self.main, self.own = ScriptedChannel(), ScriptedChannel()
        self.told: list[str] = []
        credit: Windows[Any] = Windows(is_apart=is_apart)
        machine = QueueMachine(
            credit, SettledMemory().numbers(), Rules(10), cast(Any, lambda message: message)
        )
        self.window = self.own if is_apart else self.main
        self.fetches: Fetches[ScriptedChannel] = Fetches(
            "orders",
            machine,
            take=lambda: self.window,
            main=lambda: self.main,
            free=lambda channel: None,
            returned=lambda channel: None,
            on_delivery=lambda fetch, channel, delivery: self.told.append("message"),
            on_change=lambda: None,
        )
        self.window.is_slow = True
        machine.ask(1, 5, 1.0)
        machine.plan(1.0, 0)
        (window,) = machine.take()
        assert isinstance(window, Open)
        self.fetches.carry_out(window)

    def look(self, ready: int, consumers: int = 1) -> None:
        """Ask, and have RabbitMQ answer."""
        self.fetches.look(
            lambda ready, consumers: self.told.append(f"{ready} ready"),
            lambda: self.told.append("silence"),
        )
        self.main.looks.pop(0)(ready, consumers)


@pytest.mark.parametrize("is_apart", [False, True])
def test_an_empty_queue_is_told_behind_what_was_on_its_way(is_apart: bool) -> None:
    """RabbitMQ's channel answers first, and passes on what is in its mailbox then."""
    setup = Setup(is_apart=is_apart)
    setup.look(0)
    assert setup.window.deliver is not None
    setup.window.deliver(Delivery(1, False, "", b"", b""))
    setup.window.pass_barriers()
    assert setup.told == ["message", "0 ready"]


def test_a_queue_that_has_messages_says_so_at_once() -> None:
    """More comes in any case."""
    setup = Setup(is_apart=False)
    setup.look(3)
    assert setup.told == ["3 ready"]


def test_an_answer_of_channels_that_have_ended_is_none() -> None:
    """Their messages come again, and RabbitMQ is asked again."""
    setup = Setup(is_apart=False)
    setup.look(0)
    setup.fetches.lose()
    setup.window.pass_barriers()
    assert setup.told == []
