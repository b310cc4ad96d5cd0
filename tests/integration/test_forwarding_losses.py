"""What is forwarded over connections that are lost or slow: each message once, and in order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from contextlib import AsyncExitStack

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bridge.broker.connection.endpoint import parse_url
from bridge.engine.api import ReceiveMode
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from tests.fixtures.broker import Broker
from tests.fixtures.relay import Relay
from tests.fixtures.waiting import until
from tests.integration.door import Client, Door, open_door, outgoing

SOURCE = EntityPath("source")
END = EntityPath("end")
DEAD = EntityPath("source", SubQueue.DEAD_LETTER)
QUEUES = (model.Queue(name="end"), model.Queue(name="source", forward_to="end"))

Step = tuple[str, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "turns", "cut", "slow", "fast", "leave", "lead"]),
        st.integers(0, 200),
    ),
    min_size=2,
    max_size=14,
)


class Forwarding:
    """A bridge that forwards behind a relay, and one beside it that sends and receives."""

    def __init__(self, relay: Relay, forwarding: Door, beside: Door) -> None:
        self._relay = relay
        self._forwarding = forwarding
        self._beside = beside
        self._numbers = itertools.count()
        self._end = beside.client(ReceiveMode.RECEIVE_AND_DELETE, END)
        self._dead = beside.client(ReceiveMode.RECEIVE_AND_DELETE, DEAD)
        self._sent: list[str] = []
        self._asked = 0

    async def play(self, steps: list[Step]) -> None:
        """Carry out all steps; then each message is at the target once, or a dead letter."""
        self._sent.clear()
        begun = [len(client.received) for client in (self._end, self._dead)]
        for what, count in steps:
            await self._carry_out(what, count)
        self._relay.delay_s = 0.0
        self._forwarding.namespace.forwarding.lead("source")
        for client in (self._end, self._dead):
            client.receiver.add_credit(len(self._sent) + 1)
        self._asked += len(self._sent)
        await until(self._has_all)
        arrived = bodies(self._end)[begun[0] :]
        dead = bodies(self._dead)[begun[1] :]
        assert sorted(arrived + dead) == sorted(self._sent)
        assert arrived == sorted(arrived)

    async def _carry_out(self, what: str, count: int) -> None:
        namespace = self._forwarding.namespace
        match what:
            case "send":
                texts = [f"{next(self._numbers):09}" for _ in range(count)]
                self._sent += texts
                if texts:
                    await self._beside.namespace.send(SOURCE, [outgoing(each) for each in texts])
            case "turns":
                for _ in range(count):
                    await asyncio.sleep(0)
            case "cut":
                self._relay.cut()
            case "slow":
                self._relay.delay_s = count / 4_000
            case "fast":
                self._relay.delay_s = 0.0
            case "leave":
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(count / 1_000):
                        await namespace.forwarding.leave("source")
            case "lead":
                namespace.forwarding.lead("source")

    async def _has_all(self) -> bool:
        if len(self._end.received) + len(self._dead.received) < self._asked:
            return False
        (counts,) = await self._beside.namespace.counting.counts(
            [self._beside.namespace.entity(SOURCE)]
        )
        return not counts.transfer


def bodies(client: Client) -> list[str]:
    """Return the texts of what has come."""
    return [each.record.body.decode() for each in client.received]


@pytest.mark.parametrize("examples", [2, pytest.param(10, marks=pytest.mark.long)])
def test_each_message_is_at_the_target_once_and_in_order(
    broker: Broker, vhost: str, examples: int
) -> None:
    """Connections end or are slow, and the forwarder leaves and comes back, at any moment."""

    async def open_all(stack: AsyncExitStack, relay: Relay) -> Forwarding:
        through, url = parse_url(relay.url), broker.management_url
        door = await stack.enter_async_context(open_door(through, url, *QUEUES))
        direct = parse_url(broker.url_of(vhost))
        beside = await stack.enter_async_context(open_door(direct, url, with_sidecar=False))
        await until(lambda: len(door.sidecar.leading) == len(QUEUES))
        return Forwarding(relay, door, beside)

    with Relay(broker.url_of(vhost)) as relay, asyncio.Runner() as loop:
        stack = AsyncExitStack()
        forwarding = loop.run(open_all(stack, relay))

        @given(STEPS)
        @example([("send", 200), ("turns", 30), ("cut", 0), ("send", 50)])
        @example([("slow", 100), ("send", 200), ("turns", 99), ("leave", 5), ("lead", 0)])
        @settings(
            max_examples=examples,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )
        def holds(steps: list[Step]) -> None:
            loop.run(forwarding.play(steps))

        try:
            holds()
        finally:
            loop.run(stack.aclose())
