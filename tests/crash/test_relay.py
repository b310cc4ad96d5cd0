"""A relay between two bridges, each on a RabbitMQ of its own; one of them all is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.remote.errors import RemoteError
from bridge.remote.namespace import RemoteNamespace
from bridge.testing.process import Bridge
from tests.acceptance.test_relay import (
    FILE,
    SOURCES,
    arrived,
    config_in,
    fill,
    judge,
    until_empty,
)
from tests.acceptance.test_remote import remote
from tests.crash.relay_consumer import RelayConsumer
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.cut_wire import CutWire
from tests.fixtures.relay_process import RelayProcess
from tests.fixtures.waiting import until

pytestmark = pytest.mark.timeout(900)

ALL = 2_000
BACK_S = 300.0
"""Locks of five seconds, a node's start, and the pauses of a route, one after the other."""

CONSUMED = """
[[routes]]
from = "azure/consumed"
to = "local/consumed"
"""

UNDOING = frozenset({"target bridge", "target RabbitMQ"})
"""Whose kill may undo the last completions at the target, though they were answered."""

VICTIMS = (
    "relay",
    "source bridge",
    "target bridge",
    "source RabbitMQ",
    "target RabbitMQ",
    "source network",
    "target network",
)


@dataclass
class Hybrid:
    """Two bridges on two RabbitMQs, with wires and the relay between."""

    brokers: tuple[Broker, Broker]
    bridges: tuple[Bridge, Bridge]
    wires: tuple[CutWire, CutWire]
    relay: RelayProcess

    def hurt(self, victim: str) -> None:
        """Kill something and start it again, or cut a network."""
        whose, _, what = victim.rpartition(" ")
        place = 0 if whose == "source" else 1
        match what:
            case "relay":
                self.relay.kill()
                self.relay.start()
            case "bridge":
                self.bridges[place].restart()
            case "RabbitMQ":
                node = self.brokers[place].node
                assert node is not None
                node.kill()
                node.start()
            case "network":
                self.wires[place].cut()


@pytest.fixture
def hybrid(start_broker: Callable[[], Broker], tmp_path: Path) -> Iterator[Hybrid]:
    """Everything, with the relay not started yet."""
    config = config_in(tmp_path)
    brokers = start_broker(), start_broker()
    first, second = (bridge_of(each, "/", config=config) for each in brokers)
    wires: list[CutWire] = []
    try:
        environment = {}
        for name, bridge in (("AZURE", first), ("LOCAL", second)):
            bridge.start()
            wires.append(CutWire(bridge.port))
            text = bridge.connection_string
            environment[name] = text.replace(f":{bridge.port}", f":{wires[-1].port}")
        file = tmp_path / "relay.toml"
        file.write_text(FILE + CONSUMED)
        relay = RelayProcess(file, environment)
        yield Hybrid(brokers, (first, second), (wires[0], wires[1]), relay)
        relay.kill()
    finally:
        for bridge in (first, second):
            bridge.kill()
        for wire in wires:
            wire.close()


async def come(target: RemoteNamespace) -> int:
    """How many messages have come; 0 while the target does not say."""
    try:
        return await arrived(target)
    except RemoteError:
        return 0


@asynccontextmanager
async def consuming(source: Bridge, target: Bridge) -> AsyncIterator[RelayConsumer]:
    """Send and consume, with connections of their own."""
    async with remote(source) as sending, remote(target) as receiving:
        consumer = RelayConsumer(sending, receiving, "consumed")
        consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()


async def hurt_again_and_again(hybrid: Hybrid, victim: str, times: int) -> None:
    """Relay 2,000 messages, hurt the victim so often on the way, and judge.

    Others are sent, relayed and consumed all the while.
    """
    source_bridge, target_bridge = hybrid.bridges
    async with (
        remote(source_bridge) as source,
        remote(target_bridge) as target,
        consuming(source_bridge, target_bridge) as consumer,
    ):
        await fill(source)
        hybrid.relay.start()
        for number in range(1, times + 1):
            wanted = ALL * number // (times + 2)

            async def has_come(wanted: int = wanted) -> bool:
                return await come(target) >= wanted

            await until(has_come, within_s=BACK_S)
            await asyncio.to_thread(hybrid.hurt, victim)

        async def has_all() -> bool:
            return await come(target) >= ALL

        await until(has_all, within_s=BACK_S)
        await consumer.finish(BACK_S)
        # What is at the target may come again at the source: its completion was lost in a kill.
        await until_empty(source, (*SOURCES, "consumed"), within_s=BACK_S)
        assert await asyncio.to_thread(hybrid.relay.stop) == 0
        await judge(source, target)
        await until_empty(target, ["consumed"], within_s=BACK_S)
        await consumer.stop()
        told = consumer.judge(may_come_again=victim in UNDOING)
        print(f"\n{victim}, {times} times: {told} to the target's consumer")


@pytest.mark.long
@pytest.mark.parametrize("victim", ["relay", *sorted(UNDOING)])
async def test_three_times(hybrid: Hybrid, victim: str) -> None:
    """Nothing is lost or numbered twice, each order is kept; what comes back is counted."""
    await hurt_again_and_again(hybrid, victim, 3)


@pytest.mark.kills
@pytest.mark.parametrize("victim", VICTIMS)
async def test_twenty_times(hybrid: Hybrid, victim: str) -> None:
    """The same for longer."""
    await hurt_again_and_again(hybrid, victim, 20)
