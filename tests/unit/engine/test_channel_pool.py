"""When a bridge fetches again after returns: RabbitMQ may take its time, or lose the channels."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.calls import RPC_TIMEOUT_S
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.connection.pool import Pool
from bridge.broker.connection.receiving_channel import ReceivingChannel
from bridge.engine.receiving.channel_pool import RETURNING, ChannelPool
from bridge.message.channels import RETIRE_S, REUSED, SPENT, ChannelLimits
from tests.fixtures.examples import examples
from tests.fixtures.model_broker import ClockLoop, ModelBroker

EVER_S = 4 * RPC_TIMEOUT_S
NAMED_S = 3.0
IN_USE_MAX = 8


class Return(NamedTuple):
    """A return, carried out when RabbitMQ has answered so many barriers of its channel."""

    channel: int
    barriers: int


class Receiving:
    """The channels of one queue, and the model of RabbitMQ that they are on.

    Attributes:
        in_use: the channels of windows.
        under_way: the returns that RabbitMQ has not carried out.
        may_fetch: what the receivers were told last, if nothing has been returned since.
    """

    def __init__(self, limits: ChannelLimits) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        self.broker = ModelBroker(loop)
        self.supervisor = Supervisor(loop.time)
        self.connections = Pool(
            Endpoint(hosts=(("model", 5672),)), name="test", supervisor=self.supervisor
        )
        self.in_use: list[ReceivingChannel] = []
        self.under_way: list[Return] = []
        self.may_fetch = False
        self.channels = ChannelPool(
            "orders",
            self.connections.route("orders"),
            limits,
            supervisor=self.supervisor,
            on_lost=self._on_lost,
            on_ready=self._on_ready,
        )

    async def start(self) -> None:
        """Open the main channel."""
        self.channels.open_soon()
        await asyncio.sleep(1)
        assert self.may_fetch

    def _on_lost(self, ended: list[ReceivingChannel]) -> None:
        self.in_use.clear()
        self.under_way.clear()

    def _on_ready(self) -> None:
        self.may_fetch = self.channels.can_fetch

    async def turn(self) -> None:
        """Let what is due happen, but for timers."""
        for _ in range(8):
            await asyncio.sleep(0)

    async def fetch(self, chance: int) -> None:
        """A window is opened."""
        if self.channels.can_fetch and len(self.in_use) < IN_USE_MAX:
            channel = self.channels.take()
            if channel is not None and channel not in self.in_use:
                self.in_use.append(channel)

    async def give_back(self, chance: int) -> None:
        """A message of a window goes back."""
        if self.in_use:
            channel = self.in_use[chance % len(self.in_use)]
            self.channels.returned(channel)
            self.may_fetch = False
            await self.turn()
            number = channel.channel.number
            asked, _ = self.broker.barriers.get(number, (0, 0))
            self.under_way.append(Return(number, asked))

    async def retire(self, chance: int) -> None:
        """A window has ended, and all its messages are settled."""
        if self.in_use:
            self.channels.retire(self.in_use.pop(chance % len(self.in_use)))

    async def slow(self, chance: int) -> None:
        """RabbitMQ takes its time from now on."""
        self.broker.is_slow = True

    async def quick(self, chance: int) -> None:
        """RabbitMQ has done everything, and does the rest at once."""
        self.broker.is_slow = False
        for _ in range(200):
            self.broker.answer()

    async def answer(self, chance: int) -> None:
        """RabbitMQ does some of what waits, perhaps long after the client has stopped waiting."""
        self.broker.answer()

    async def close_channel(self, chance: int) -> None:
        """RabbitMQ closes a channel."""
        numbers = sorted(self.broker.barriers)
        if numbers:
            self.broker.close_channel(numbers[chance % len(numbers)])

    async def lose(self, chance: int) -> None:
        """The connection is lost."""
        self.broker.lose(reads_rest=False)

    async def wait(self, chance: int) -> None:
        """Time passes."""
        await asyncio.sleep((RETIRE_S / 2, NAMED_S, RPC_TIMEOUT_S, RPC_TIMEOUT_S + 1)[chance])
        if self.under_way and not self.channels.can_fetch and chance:
            assert any(RETURNING in each for each in self.supervisor.waits.sentences())

    def check(self) -> None:
        """Nothing may be fetched while a message is on its way back: it would be overtaken."""
        barriers = self.broker.barriers
        self.under_way = [
            each
            for each in self.under_way
            if each.channel not in barriers or barriers[each.channel][1] < each.barriers
        ]
        if self.channels.can_fetch:
            assert not self.under_way

    async def end(self) -> None:
        """RabbitMQ does all in the end; then the receivers go on."""
        await self.quick(0)
        await asyncio.sleep(EVER_S)
        assert self.may_fetch, "receivers get nothing for ever"
        assert self.channels.can_fetch
        assert not self.supervisor.waits.sentences()
        await self.channels.close()
        await self.connections.close()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["fetch", "give_back", "wait", "slow"] * 2,
                "retire",
                "quick",
                "answer",
                "close_channel",
                "lose",
            ]
        ),
        st.integers(0, 3),
    ),
    max_size=30,
)


async def carry_out(steps: list[tuple[str, int]], limits: ChannelLimits) -> None:
    """Carry out all steps; nothing is fetched too early, and receivers go on in the end."""
    receiving = Receiving(limits)
    await receiving.start()
    for what, chance in steps:
        await getattr(receiving, what)(chance)
        await receiving.turn()
        receiving.check()
    await receiving.end()


def run(steps: list[tuple[str, int]], limits: ChannelLimits) -> None:
    """Carry out steps on a clock of their own."""
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(carry_out(steps, limits))


@pytest.mark.parametrize("limits", [REUSED, SPENT], ids=["reused", "spent"])
@given(steps=STEPS)
@example(steps=[("fetch", 0), ("slow", 0), ("give_back", 0), ("wait", 3), ("answer", 0)])
@example(steps=[("fetch", 0), ("slow", 0), ("give_back", 0), ("retire", 0), ("wait", 1)])
@settings(deadline=None, max_examples=examples(100))
def test_receivers_go_on_once_rabbitmq_has_taken_back_what_was_returned(
    limits: ChannelLimits, steps: list[tuple[str, int]]
) -> None:
    """Not before, and in any case, however late RabbitMQ answers, and whatever it closes."""
    run(steps, limits)


@pytest.mark.parametrize("limits", [REUSED, SPENT], ids=["reused", "spent"])
def test_an_answer_that_is_later_than_its_deadline_ends_no_receiver(limits: ChannelLimits) -> None:
    """RabbitMQ is asked again: the expired question would be waited for until the channels end."""
    run([("fetch", 0), ("slow", 0), ("give_back", 0), ("wait", 3), ("wait", 3)], limits)


def test_a_window_that_ended_with_a_return_stays_open_until_rabbitmq_has_carried_it_out() -> None:
    """Its channel would be closed after a second, and the answer would not come."""
    run([("fetch", 0), ("slow", 0), ("give_back", 0), ("retire", 0), ("wait", 1)], SPENT)
