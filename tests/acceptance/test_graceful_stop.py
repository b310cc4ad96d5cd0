"""SIGTERM under load: what a bridge has stored it has told; what it held is free at once."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from itertools import count
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from bridge.wire.amqp10.performatives import Accepted, Attach, Disposition
from tests.acceptance.balancer import Balancer
from tests.acceptance.sdk import client_of, native_channel, receive, send
from tests.conformance.client import Client, sas
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import ENDS_S
from tests.unit.test_mapping import data

pytestmark = pytest.mark.long

ENTITIES = {"orders": {"LockDuration": "PT1M", "MaxDeliveryCount": 10}}

SENDERS = 3
UNDER_WAY = 200
"""Sends that each client has under way at once."""

LINK = 9

LEAVES_SOCKETS = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""The SDK leaves sockets behind when its connection is cut."""


class Sender:
    """A client with many sends under way at any time.

    Attributes:
        told: the bodies of the sends that were answered with success.
    """

    def __init__(self, client: Client, bodies: Any) -> None:
        self.client = client
        self.told: set[bytes] = set()
        self._bodies = bodies
        self._under_way: dict[int, bytes] = {}

    async def work(self) -> None:
        """Send until the bridge hangs up."""
        while not self.client.is_closed:
            while len(self._under_way) < UNDER_WAY:
                body = next(self._bodies)
                self._under_way[self.client.transfer(LINK, data(body))] = body
            await self._hear()
        self._note()

    async def _hear(self) -> None:
        try:
            await self.client.until(lambda: self.client.frames, within_s=120)
        except AssertionError:
            return
        self._note()

    def _note(self) -> None:
        frames, self.client.frames[:] = list(self.client.frames), []
        for performative, _ in frames:
            if isinstance(performative, Disposition) and isinstance(performative.state, Accepted):
                for number in range(
                    performative.first, (performative.last or performative.first) + 1
                ):
                    self.told.add(self._under_way.pop(number))


async def connected(bridge: Bridge) -> Client:
    """A client with a link to send on."""
    client = await (await Client.connect(bridge.port)).open()
    assert await client.put_token(sas()) == 202
    client.attach(LINK, "orders", role=False)
    await client.next(Attach, handle=LINK)
    client.frames.clear()
    return client


def drain(bridge: Bridge) -> list[bytes]:
    """Take all that is in the queue, when what waits in the inbox has its number."""
    found: list[bytes] = []
    with native_channel(bridge) as channel:
        while True:
            method, _, body = channel.basic_get("orders", auto_ack=True)
            if method is not None:
                found.append(body)
            elif channel.queue_declare("orders/$inbox", passive=True).method.message_count:
                time.sleep(0.05)
            else:
                return found


async def stop_under_load(bridge: Bridge) -> int:
    """Stop a bridge while much is sent; return how many sends were told."""
    numbers = count()
    bodies = (b"%d" % number for number in numbers)
    senders = [Sender(await connected(bridge), bodies) for _ in range(SENDERS)]
    working = [asyncio.create_task(sender.work()) for sender in senders]
    while sum(len(sender.told) for sender in senders) < 500:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    begun = time.monotonic()
    code = await asyncio.to_thread(bridge.stop)
    assert (code, time.monotonic() - begun < ENDS_S) == (0, True)
    await asyncio.gather(*working)
    for sender in senders:
        await sender.client.close()
    told = set().union(*(sender.told for sender in senders))
    await asyncio.to_thread(bridge.start)
    stored = await asyncio.to_thread(drain, bridge)
    assert len(stored) == len(set(stored))
    assert set(stored) - told == set(), "stored and not told: who is not told sends again"
    assert told - set(stored) == set(), "told and not stored"
    return len(told)


async def test_what_is_stored_is_told(start_bridge: StartBridge) -> None:
    """Of hundreds of sends that are under way at SIGTERM none is stored and left unanswered."""
    bridge = start_bridge()
    for _ in range(2):
        await stop_under_load(bridge)


@pytest.mark.soak
async def test_what_is_stored_is_told_in_twenty_stops(start_bridge: StartBridge) -> None:
    """The same for longer."""
    bridge = start_bridge()
    for _ in range(20):
        await stop_under_load(bridge)


class Retrying(threading.Thread):
    """A client as an application has one: what fails is sent again, by the SDK and by it.

    Attributes:
        told: how many sends have succeeded.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name=name, daemon=True)
        self.text = text
        self.told = 0
        self.ending = threading.Event()

    def run(self) -> None:
        """Send one message after another until told to end."""
        with ServiceBusClient.from_connection_string(self.text, retry_backoff_factor=0.1) as client:
            while not self.ending.is_set():
                try:
                    with client.get_queue_sender("orders") as sender:
                        self._send(sender)
                except (ServiceBusError, OSError, ValueError):
                    time.sleep(0.1)

    def _send(self, sender: Any) -> None:
        while not self.ending.is_set():
            sender.send_messages(ServiceBusMessage(f"{self.name}-{self.told}"))
            self.told += 1


def restart_in_turn(start_bridge: StartBridge, rounds: int) -> int:
    """Restart two bridges behind a balancer in turn; return how many sends succeeded."""
    bridges = [start_bridge(), start_bridge()]
    with Balancer(*(bridge.port for bridge in bridges)) as balancer:
        text = bridges[0].connection_string.replace(str(bridges[0].port), str(balancer.port))
        clients = [Retrying(f"c{number}", text) for number in range(8)]
        for client in clients:
            client.start()
        for _ in range(rounds):
            for bridge in bridges:
                before = sum(client.told for client in clients)
                while sum(client.told for client in clients) < before + 100:
                    time.sleep(0.02)
                assert bridge.stop() == 0
                bridge.start()
        for client in clients:
            client.ending.set()
        for client in clients:
            client.join(120)
            assert not client.is_alive()
    gc.collect()  # here, where its warnings are expected
    stored = drain(bridges[0])
    expected = [
        f"{client.name}-{number}".encode() for client in clients for number in range(client.told)
    ]
    assert sorted(stored) == sorted(expected)
    return len(stored)


@LEAVES_SOCKETS
def test_rolling_restarts_double_nothing(start_bridge: StartBridge) -> None:
    """Two bridges behind a TCP balancer are restarted in turn; clients retry."""
    restart_in_turn(start_bridge, 1)


@LEAVES_SOCKETS
@pytest.mark.soak
def test_five_rolling_restarts_double_nothing(start_bridge: StartBridge) -> None:
    """The same for longer."""
    assert restart_in_turn(start_bridge, 5) > 1_000


@LEAVES_SOCKETS
def test_locks_that_a_stop_ends(start_bridge: StartBridge, broker: Broker) -> None:
    """They are given back, uncounted since 4.3; before it RabbitMQ counts whatever is returned."""
    bridge = start_bridge()
    with client_of(bridge) as client:
        send(client, "orders", *(f"m{number}" for number in range(40)))
        with client.get_queue_receiver("orders") as receiver:
            receive(receiver, 30)
            assert bridge.stop() == 0
    gc.collect()
    bridge.start()
    with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
        again = receive(receiver, 40)
    counts = [message.delivery_count or 0 for message in again]
    assert {str(message) for message in again} == {f"m{number}" for number in range(40)}
    if broker.version >= (4, 3):
        assert counts == [0] * 40
        assert [str(message) for message in again] == [f"m{number}" for number in range(40)]
    else:
        assert sorted(counts) == [0] * 10 + [1] * 30
