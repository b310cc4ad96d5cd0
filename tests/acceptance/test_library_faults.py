"""The library when something goes wrong: lost connections, dead clients, forks, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pamqp.base
import pamqp.commands
import pytest

from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import expect_silence, receive, take
from tests.fixtures.relay import Relay

ENTITIES = {
    f"{name}-{lane}": {"LockDuration": "PT1M", "MaxDeliveryCount": 10}
    for name in ("cut", "unknown", "killed", "restarted")
    for lane in LANES[1:]
} | {"signalled": {}, "forked": {}}


@pytest.fixture(params=LANES[1:])
def lane_name(request: pytest.FixtureRequest) -> str:
    """The library on pika, and on aio-pika."""
    name: str = request.param
    return name


@pytest.fixture
def cable(bridge: Any, lane_name: str) -> Iterator[tuple[Relay, Lane]]:
    """A client behind a relay, and the relay."""
    with ExitStack() as ends:
        relay = ends.enter_context(Relay(bridge.amqp_url, holds=lambda method: False))
        place = SimpleNamespace(amqp_url=relay.url)
        yield relay, ends.enter_context(lane_of(lane_name, place))


def test_a_lost_connection(cable: tuple[Relay, Lane]) -> None:
    """The client connects again; what was locked comes again, once, and its old lock is lost."""
    relay, lane = cable
    queue = f"cut-{lane.name}"
    lane.send(queue, "one", "two")
    with lane.client.get_queue_receiver(queue) as receiver:
        held = receive(receiver, 2)
        receiver.complete_message(held[0])
        relay.cut()
        (again,) = receive(receiver, 1)
        assert (str(again), again.delivery_count) == ("two", 1)
        with pytest.raises(lane.errors.MessageLockLostError):
            receiver.complete_message(held[1])
        receiver.complete_message(again)
        lane.send(queue, "three")
        assert [str(each) for each in take(receiver)] == ["three"]
        expect_silence(receiver, for_s=0.3)


def test_a_send_of_which_nobody_knows(bridge: Any, lane_name: str) -> None:
    """It says so, is not repeated, and the next one is sent."""
    queue = f"unknown-{lane_name}"

    def holds(method: pamqp.base.Frame) -> bool:
        return isinstance(method, pamqp.commands.Basic.Publish) and method.exchange == queue

    with ExitStack() as ends:
        relay = ends.enter_context(Relay(bridge.amqp_url, holds=holds))
        lane = ends.enter_context(lane_of(lane_name, SimpleNamespace(amqp_url=relay.url)))
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(lane.send, queue, "lost")
            assert relay.holding.wait(10)
            relay.cut()
            with pytest.raises(lane.errors.OutcomeUnknownError, match="may have arrived"):
                sending.result(20)
        relay.release()
        lane.send(queue, "after")
        with lane.client.get_queue_receiver(queue) as receiver:
            assert [str(each) for each in take(receiver)] == ["after"]
            expect_silence(receiver, for_s=0.3)


KILLED = """
import asyncio, os, signal, sys
import bridge.client, bridge.client.aio

def end(messages):
    print(len(messages), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

async def on_loop():
    client = bridge.client.aio.ServiceBusClient(sys.argv[1])
    end(await client.get_queue_receiver(sys.argv[2]).receive_messages(2, max_wait_time=10))

if sys.argv[2].endswith("aio-pika"):
    asyncio.run(on_loop())
client = bridge.client.ServiceBusClient(sys.argv[1])
end(client.get_queue_receiver(sys.argv[2]).receive_messages(2, max_wait_time=10))
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_client_that_dies(bridge: Any, lane_name: str) -> None:
    """What it had locked comes again at once, each message one more on its count."""
    with lane_of(lane_name, bridge) as lane:
        queue = f"killed-{lane.name}"
        lane.send(queue, "a", "b")
        died = run(KILLED, bridge.amqp_url, queue)
        assert (died.returncode, died.stdout) == (-signal.SIGKILL, "2\n"), died.stderr
        with lane.client.get_queue_receiver(queue) as receiver:
            again = take(receiver, 2)
            assert {(str(each), each.delivery_count) for each in again} == {("a", 1), ("b", 1)}


@pytest.mark.kills
def test_bridges_that_are_restarted(bridge: Any) -> None:
    """What a client is doing goes on: it needs no bridge to settle and to receive."""
    with ExitStack() as ends:
        lanes = [ends.enter_context(lane_of(name, bridge)) for name in LANES[1:]]
        queues = [f"restarted-{lane.name}" for lane in lanes]
        receivers = []
        for lane, queue in zip(lanes, queues, strict=True):
            lane.send(queue, "a", "b", "c")
            receivers.append(ends.enter_context(lane.client.get_queue_receiver(queue)))
        held = [receive(receiver)[0] for receiver in receivers]
        bridge.kill()
        for lane, queue, receiver, first in zip(lanes, queues, receivers, held, strict=True):
            receiver.complete_message(first)
            assert [str(each) for each in take(receiver)] == ["b"]
            lane.send(queue, "d")  # waits in the inbox
        bridge.start()
        for receiver in receivers:
            assert [str(each) for each in take(receiver, 2)] == ["c", "d"]


SIGNALLED = """
import os, signal, sys, threading
from bridge.client import ServiceBusClient
client = ServiceBusClient(sys.argv[1])
receiver = client.get_queue_receiver("signalled")
receiver.__enter__()
signal.signal(signal.SIGTERM, lambda number, frame: client.close())
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
print(receiver.receive_messages(1, max_wait_time=30), flush=True)
"""


def test_closing_in_a_signal_handler(bridge: Any) -> None:
    """The call that waited returns with nothing."""
    began = time.monotonic()
    ended = run(SIGNALLED, bridge.amqp_url)
    assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr
    assert time.monotonic() - began < 20


FORKED = """
import os, sys
from bridge.client import ServiceBusClient, ServiceBusMessage
from bridge.client.exceptions import ServiceBusError
client = ServiceBusClient(sys.argv[1])
sender = client.get_queue_sender("forked")
sender.send_messages(ServiceBusMessage("parent"))
child = os.fork()
if not child:
    try:
        sender.send_messages(ServiceBusMessage("child"))
    except ServiceBusError as error:
        os._exit(7 if "fork" in str(error) else 1)
    os._exit(2)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sender.send_messages(ServiceBusMessage("parent again"))
client.close()
sys.exit(code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork(bridge: Any) -> None:
    """The child is told to make a client of its own; the parent's goes on."""
    ended = run(FORKED, bridge.amqp_url)
    assert ended.returncode == 7, ended.stderr
    with lane_of("pika", bridge) as lane, lane.client.get_queue_receiver("forked") as receiver:
        assert [str(each) for each in take(receiver, 2)] == ["parent", "parent again"]
