"""What a queue has ready when a receiver takes its credit back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import pytest

from bridge.engine.receiving import ready_messages
from bridge.engine.receiving.ready_messages import ReadyMessages
from bridge.machine.credit.effects import Close, Get, Look, Open
from bridge.machine.credit.windows import Windows
from bridge.machine.queue.fate import Rules
from bridge.machine.queue.queue import QueueMachine
from bridge.machine.queue.settled import SettledMemory
from bridge.message.channels import SHARED, Channels
from bridge.message.fetches import Fetches
from tests.fixtures.scripted_wire import ScriptedChannel

FIRST, SECOND = 1, 2


@dataclass(slots=True, eq=False)
class Given:
    """A message that a receiver has."""

    number: int
    fetch: int
    expires_ms: int | None = None
    time_to_live_ms: int | None = None
    generation: int = 0
    failures: int = 0
    identity: bytes = b""
    deaths: int = 0


class Setup:
    """A queue whose first receiver has asked for five messages, and has three of them."""

    def __init__(self) -> None:
        self.channel = ScriptedChannel()
        self.changed = asyncio.Event()
        self.machine: QueueMachine[Any, Any] = QueueMachine(
            Windows(), SettledMemory().numbers(), Rules(10), cast(Any, lambda message: message)
        )
        self.fetches: Fetches[ScriptedChannel] = Fetches(
            "orders",
            self.machine,
            take=lambda: self.channel,
            main=lambda: self.channel,
            free=lambda channel: None,
            returned=lambda channel: None,
            on_delivery=lambda fetch, channel, delivery: None,
            on_change=self.changed.set,
        )
        channels: Channels[ScriptedChannel] = Channels(
            SHARED,
            open_own=lambda on_closed: None,
            later=lambda after_s, call: None,
            on_lost=lambda error, ended: None,
            on_ready=self.changed.set,
        )
        channels.set_up(True)
        self.ready = ReadyMessages(
            cast(Any, channels),
            cast(Any, self.fetches),
            self.machine.credit,
            self.changed,
        )
        self.machine.ask(FIRST, 5, 1.0)
        (window,) = self.act()
        self.given = [Given(number, window.fetch) for number in (1, 2, 3)]
        assert [self.machine.arrived(each, 1.0, 0) for each in self.given] == [FIRST] * 3

    def act(self) -> list[Any]:
        """Carry out what the machine decides, and return it."""
        self.machine.plan(1.0, 0)
        effects = self.machine.take()
        for effect in effects:
            if isinstance(effect, Open | Get | Look | Close):
                self.fetches.carry_out(effect)
        self.changed.set()
        return effects


async def test_a_queue_is_not_empty_while_messages_wait_to_go_back_to_it() -> None:
    """RabbitMQ counts none, and its only consumer is the window that closes before they go back."""
    setup = Setup()
    setup.machine.withdraw(FIRST)
    assert Close in map(type, setup.act())
    for each in setup.given:
        setup.machine.release(each, 1.0, 0)
    setup.machine.ask(SECOND, 3, 1.0)
    setup.act()
    assert setup.machine.credit.buffered == 3

    bringing = asyncio.ensure_future(setup.ready.bring(SECOND))
    await asyncio.sleep(0)
    while setup.channel.looks:
        setup.channel.looks.pop(0)(0, 1)
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not bringing.done()

    assert setup.channel.end is not None
    setup.channel.end()
    for _ in range(3):  # one get looks for what RabbitMQ has returned by itself
        setup.act()
        if setup.channel.gets:
            setup.channel.answer_get(None)
    window = max(setup.fetches.windows)
    for number in (1, 2, 3):
        assert setup.machine.arrived(Given(number, window), 1.0, 0) == SECOND
    setup.changed.set()
    await bringing


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
async def test_whether_rabbitmq_has_said_that_there_is_no_more_is_told(
    is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RabbitMQ that is slow may bring more: a search for messages by number goes on then."""
    if not is_told:
        monkeypatch.setattr(ready_messages, "BRING_S", 0.05)
    setup = Setup()
    bringing = asyncio.ensure_future(setup.ready.bring(FIRST))
    if is_told:
        await asyncio.sleep(0)
        setup.channel.looks.pop(0)(0, 1)
    assert await bringing is is_told
