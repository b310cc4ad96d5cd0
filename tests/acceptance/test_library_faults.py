"""The library when something goes wrong: lost connections, dead clients, forks, signals."""

from __future__ import annotations

import gc
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any

import pamqp.base
import pamqp.commands
import pytest
from pika import ConnectionParameters

from bridge.client import ServiceBusMessage
from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import expect_silence, receive, take
from tests.fixtures.relay import Relay

ENTITIES = {
    f"{name}-{lane}": {"LockDuration": "PT1M", "MaxDeliveryCount": 10}
    for name in ("cut", "unknown", "killed", "restarted")
    for lane in LANES[1:]
} | {
    name: {"LockDuration": "PT1M"}
    for name in ("signalled", "forked", "interrupted", "closed", "working", "shared")
}


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
            assert relay.holding.wait(120)
            relay.cut()
            with pytest.raises(lane.errors.OutcomeUnknownError, match="may have arrived"):
                sending.result(120)
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
    end(await client.get_queue_receiver(sys.argv[2]).receive_messages(2, max_wait_time=120))

if sys.argv[2].endswith("aio-pika"):
    asyncio.run(on_loop())
client = bridge.client.ServiceBusClient(sys.argv[1])
end(client.get_queue_receiver(sys.argv[2]).receive_messages(2, max_wait_time=120))
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_client_that_dies(bridge: Any, lane_name: str) -> None:
    """Its locked messages come again at once, each with one more delivery on its count."""
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
    """A client's operations go on: it needs no bridge to settle and to receive."""
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
print(receiver.receive_messages(1, max_wait_time=300), flush=True)
"""


def test_closing_in_a_signal_handler(bridge: Any) -> None:
    """The call that waited returns with nothing."""
    began = time.monotonic()
    ended = run(SIGNALLED, bridge.amqp_url)
    assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr
    assert time.monotonic() - began < 120


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


@contextmanager
def within(function: str, act: Callable[[], object]) -> Iterator[None]:
    """Have something done once where a signal may come: as that function is called here."""

    def see(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == function:
            sys.setprofile(None)
            act()

    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("function", ["departing", "ack", "left"])
def test_an_interrupt_in_the_middle_of_a_completion(bridge: Any, function: str) -> None:
    """The client goes on; what it held comes again, and what was not completed is not lost."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    bodies = {str(number) for number in range(9)}
    with lane_of("pika", bridge) as lane:
        lane.send("interrupted", *sorted(bodies))
        with lane.client.get_queue_receiver("interrupted") as receiver:
            messages = receive(receiver, len(bodies))
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012
                while messages:  # what is asked while RabbitMQ says something is done elsewhere
                    with within(function, interrupt):
                        receiver.complete_message(messages[0])
                    bodies.discard(str(messages.pop(0)))
            unsure = str(messages[0])
            while bodies - {unsure}:
                for message in receiver.receive_messages(9, max_wait_time=10):
                    receiver.complete_message(message)
                    bodies.remove(str(message))
            bodies |= {str(each) for each in receiver.receive_messages(9, max_wait_time=1)}
    assert bodies <= {unsure}
    with lane_of("pika", bridge) as lane, lane.client.get_queue_receiver("interrupted") as receiver:
        for message in receiver.receive_messages(9, max_wait_time=1):
            assert str(message) == unsure
            receiver.complete_message(message)


def test_closing_in_the_middle_of_a_completion(bridge: Any) -> None:
    """By a signal handler: it returns at once, and what is locked is free soon."""
    with lane_of("pika", bridge) as lane:
        lane.send("closed", "one", "two")
        receiver = lane.client.get_queue_receiver("closed")
        one, _ = receive(receiver, 2)
        begin_s = time.monotonic()
        with within("left", lane.client.close):
            receiver.complete_message(one)
        assert time.monotonic() - begin_s < 30
    with lane_of("pika", bridge) as lane, lane.client.get_queue_receiver("closed") as receiver:
        assert [str(message) for message in take(receiver, 1)] == ["two"]


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # a client that was not answered forgets its sockets
def test_closing_while_rabbitmq_does_not_answer(bridge: Any, lane_name: str) -> None:
    """It does not wait for one channel after the other."""
    queue = f"cut-{lane_name}"
    took_s = _closed_within_s(bridge, lane_name, queue)
    gc.collect()
    assert took_s < 20
    with lane_of(lane_name, bridge) as lane, lane.client.get_queue_receiver(queue) as receiver:
        take(receiver, 12)


def _closed_within_s(bridge: Any, lane_name: str, queue: str) -> float:
    """Lock twelve messages, each by a channel of its own; return how long the close takes."""

    def holds(method: pamqp.base.Frame) -> bool:
        return isinstance(method, pamqp.commands.Channel.Close)

    with ExitStack() as ends:
        relay = ends.enter_context(Relay(bridge.amqp_url, holds=holds))
        lane = ends.enter_context(lane_of(lane_name, SimpleNamespace(amqp_url=relay.url)))
        lane.send(queue, *map(str, range(12)))
        receiver = lane.client.get_queue_receiver(queue)
        for _ in range(12):
            receive(receiver)
        began_s = time.monotonic()
        lane.client.close()
        return time.monotonic() - began_s


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork(bridge: Any) -> None:
    """The child is told to make a client of its own; the parent's goes on."""
    ended = run(FORKED, bridge.amqp_url)
    assert ended.returncode == 7, ended.stderr
    with lane_of("pika", bridge) as lane, lane.client.get_queue_receiver("forked") as receiver:
        assert [str(each) for each in take(receiver, 2)] == ["parent", "parent again"]


def test_a_handler_that_works_for_long_keeps_its_connection(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ ends a connection that is silent for two heartbeats; the I/O thread is not."""
    often = partial(ConnectionParameters, heartbeat=1)
    monkeypatch.setattr("bridge.client.sync.connection.ConnectionParameters", often)
    with lane_of("pika", bridge) as lane:
        lane.send("working", "one")
        with lane.client.get_queue_receiver("working") as receiver:
            (message,) = receive(receiver, 1)
            time.sleep(5)  # its work
            receiver.complete_message(message)
            expect_silence(receiver)


def test_threads_that_share_a_client(bridge: Any) -> None:
    """Four send, receive, and complete what another one has received: each message once."""
    bodies = {str(number) for number in range(400)}
    done: list[str] = []
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(client: Any, part: list[str]) -> None:
        with client.get_queue_sender("shared") as sender:
            for body in part:
                sender.send_messages(ServiceBusMessage(body))

    def work(client: Any) -> None:
        with client.get_queue_receiver("shared") as receiver:
            while len(done) < len(bodies):
                for message in receiver.receive_messages(7, max_wait_time=0.2):
                    waiting.put(message)
                while not waiting.empty():
                    with suppress(queue.Empty):
                        message = waiting.get_nowait()
                        receiver.complete_message(message)
                        done.append(str(message))

    with lane_of("pika", bridge) as lane, ThreadPoolExecutor() as at_work:
        parts = [sorted(bodies)[at::4] for at in range(4)]
        tasks = [at_work.submit(send, lane.client, part) for part in parts]
        tasks += [at_work.submit(work, lane.client) for _ in range(4)]
        for task in tasks:
            task.result(120)
        with lane.client.get_queue_receiver("shared") as receiver:
            expect_silence(receiver)
    assert sorted(done) == sorted(bodies)
