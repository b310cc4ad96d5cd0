"""Sessions of the library when something goes wrong, and beside other clients."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from bridge.client import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode
from bridge.client.aio import ServiceBusClient as AsyncServiceBusClient
from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import native_channel, native_get, receive, take
from tests.fixtures.bridge import StartBridge
from tests.fixtures.relay import Relay
from tests.fixtures.waiting import eventually

_IN_SESSIONS = {"LockDuration": "PT5M", "MaxDeliveryCount": 10, "RequiresSession": True}
ENTITIES = {
    f"{name}-{lane}": _IN_SESSIONS
    for name in ("cut", "killed", "moved", "given")
    for lane in LANES[1:]
}
ENTITIES |= {"cancelled": _IN_SESSIONS, "deleted": _IN_SESSIONS}
TOPICS = [
    {
        "Name": "witnessed",
        "Subscriptions": [
            {"Name": "sessions", "Properties": _IN_SESSIONS},
            {"Name": "native", "Properties": {}},
        ],
    }
]

SOON_S = 120.0
"""A fraction of the locks' duration."""

LOST = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""A client that was cut off forgets its socket."""


@pytest.fixture(params=LANES[1:])
def lane_name(request: pytest.FixtureRequest) -> str:
    """The library on pika, and on aio-pika."""
    name: str = request.param
    return name


def send(lane: Lane, queue: str, *bodies: str) -> None:
    """Send messages of the session "s"."""
    lane.send(queue, *bodies, session_id="s")


def accepted(lane: Lane, queue: str) -> Any:
    """Accept the session "s", as soon as it is free."""
    found: list[Any] = []

    def accept() -> bool:
        receiver = lane.client.get_queue_receiver(queue, session_id="s")
        try:
            receiver.__enter__()
        except lane.errors.SessionCannotBeLockedError:
            return False
        found.append(receiver)
        return True

    eventually(accept, "the session is free", within_s=SOON_S)
    return found[0]


def awaited_loss(lane: Lane, receiver: Any) -> None:
    """Wait for messages until the session is lost, before its lock has ended by itself."""
    with pytest.raises(lane.errors.SessionLockLostError):
        receiver.receive_messages(1, max_wait_time=SOON_S)
    assert receiver.session.locked_until_utc > datetime.now(UTC)


def test_a_lost_connection(bridge: Any, lane_name: str) -> None:
    """The session is lost, and free at once for the client, which is connected again by itself."""
    queue = f"cut-{lane_name}"
    with ExitStack() as ends:
        relay = ends.enter_context(Relay(bridge.amqp_url, holds=lambda method: False))
        lane = ends.enter_context(lane_of(lane_name, SimpleNamespace(amqp_url=relay.url)))
        send(lane, queue, "one", "two")
        with lane.client.get_queue_receiver(queue, session_id="s") as receiver:
            first, second = receive(receiver, 2)
            receiver.complete_message(first)
            relay.cut()
            awaited_loss(lane, receiver)
            with pytest.raises(lane.errors.SessionLockLostError):
                receiver.complete_message(second)
            with pytest.raises(lane.errors.SessionLockLostError):
                receiver.session.renew_lock()
        again = accepted(lane, queue)
        (message,) = take(again)
        assert (str(message), message.delivery_count) == ("two", 0)
        again.close()


def test_a_client_that_is_closed(bridge: Any, lane_name: str) -> None:
    """Its sessions are free, also those whose receivers it has not closed."""
    queue = f"killed-{lane_name}"
    with lane_of(lane_name, bridge) as lane:
        send(lane, queue, "left")
        assert [str(each) for each in receive(accepted(lane, queue))] == ["left"]
    with lane_of(lane_name, bridge) as lane:
        receiver = accepted(lane, queue)
        assert [(str(each), each.delivery_count) for each in take(receiver)] == [("left", 0)]
        receiver.close()


def test_a_wait_for_a_session_ends_with_its_client(bridge: Any, lane_name: str) -> None:
    """Not a minute later: whatever is given then is given to nobody."""
    with lane_of(lane_name, bridge) as lane, ThreadPoolExecutor(1) as pool:
        _, waiting = waits(lane, f"given-{lane_name}", pool)
        lane.client.close()
        with pytest.raises(lane.errors.ServiceBusConnectionError):
            waiting.result(SOON_S)


def test_a_session_that_is_given_to_a_closed_receiver(bridge: Any, lane_name: str) -> None:
    """Somebody else has it at once; the call that waited for it hears that it was closed."""
    queue = f"given-{lane_name}"
    with lane_of(lane_name, bridge) as lane, ThreadPoolExecutor(1) as pool:
        first, waiting = waits(lane, queue, pool)
        first.close()
        send(lane, queue, "one")
        with pytest.raises(ValueError, match="shutdown"):
            waiting.result(SOON_S)
        receiver = accepted(lane, queue)
        assert [str(each) for each in take(receiver)] == ["one"]
        receiver.close()


def test_a_wait_without_an_end(bridge: Any, lane_name: str) -> None:
    """It ends with the first session that has a message."""
    queue = f"given-{lane_name}"
    with lane_of(lane_name, bridge) as lane, ThreadPoolExecutor(1) as pool:
        receiver, waiting = waits(lane, queue, pool, max_wait_time=math.inf)
        send(lane, queue, "one")
        (message,) = waiting.result(SOON_S)
        receiver.complete_message(message)
        receiver.close()


def waits(lane: Lane, queue: str, pool: ThreadPoolExecutor, **options: Any) -> tuple[Any, Any]:
    """Have a receiver wait for the next session; return it, and its call."""
    with lane.client.get_queue_sender(queue):
        pass  # so the client knows its bridge and the queue, and asks for nothing else
    receiver = lane.client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, **options)
    waiting = pool.submit(receiver.receive_messages)
    namespace = getattr(lane.client, "_inner", lane.client)._namespace
    eventually(lambda: namespace._publisher._questions or waiting.done(), "a session is asked for")
    return receiver, waiting


KILLED = """
import asyncio, os, signal, sys
import bridge.client, bridge.client.aio

def end(messages):
    print(len(messages), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

async def on_loop():
    client = bridge.client.aio.ServiceBusClient(sys.argv[1])
    receiver = client.get_queue_receiver(sys.argv[2], session_id="s")
    end(await receiver.receive_messages(2, max_wait_time=120))

if sys.argv[2].endswith("aio-pika"):
    asyncio.run(on_loop())
client = bridge.client.ServiceBusClient(sys.argv[1])
end(client.get_queue_receiver(sys.argv[2], session_id="s").receive_messages(2, max_wait_time=120))
"""


def test_a_client_that_dies(bridge: Any, lane_name: str) -> None:
    """Its session is free long before its lock would have ended, and nothing is counted."""
    queue = f"killed-{lane_name}"
    with lane_of(lane_name, bridge) as lane:
        send(lane, queue, "a", "b")
        died = subprocess.run(
            [sys.executable, "-c", KILLED, bridge.amqp_url, queue],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (died.returncode, died.stdout) == (-signal.SIGKILL, "2\n"), died.stderr
        receiver = accepted(lane, queue)
        found = take(receiver, 2)
        assert [(str(each), each.delivery_count) for each in found] == [("a", 0), ("b", 0)]
        receiver.close()


@pytest.mark.long
@LOST
def test_a_bridge_that_holds_the_sessions_dies(start_bridge: StartBridge) -> None:
    """Through another bridge: the client hears of it, accepts again, and has what was unsettled."""
    with ExitStack() as ends:
        # Of one shard: of several the owner gives those up that another bridge is to own.
        holder, other = (start_bridge("--session-shards", "1") for _ in range(2))
        azure = ends.enter_context(lane_of("azure", holder))
        for name in LANES[1:]:  # whoever accepts first at an entity holds its sessions
            queue = f"moved-{name}"
            with azure.client.get_queue_receiver(queue, session_id="first"):
                send(azure, queue, "one", "two")
        os.kill(holder.pid, signal.SIGSTOP)  # so that the other one answers the clients
        lanes = [ends.enter_context(lane_of(name, other)) for name in LANES[1:]]
        for lane in lanes:
            with lane.client.get_queue_sender(f"moved-{lane.name}"):
                pass
        os.kill(holder.pid, signal.SIGCONT)
        receivers = [accepted(lane, f"moved-{lane.name}") for lane in lanes]
        for receiver in receivers:
            receiver.session.set_state("kept")
            first, _ = receive(receiver, 2)
            receiver.complete_message(first)
        holder.kill()
        for lane, receiver in zip(lanes, receivers, strict=True):
            awaited_loss(lane, receiver)
            receiver.close()
        for lane in lanes:
            again = accepted(lane, f"moved-{lane.name}")
            assert again.session.get_state() == b"kept"
            (message,) = take(again)
            assert (str(message), message.delivery_count) == ("two", 0)
            again.close()


def test_one_session_for_all_clients(bridge: Any) -> None:
    """The library receives messages of the SDK and pika, and answers with the same properties."""
    with ExitStack() as ends:
        lanes = [ends.enter_context(lane_of(name, bridge)) for name in LANES]
        channel = ends.enter_context(native_channel(bridge))
        azure, *ours = lanes
        for lane in ours:
            _talk(azure, lane, channel)


def _talk(azure: Lane, lane: Lane, channel: Any) -> None:
    with azure.client.get_topic_sender("witnessed") as sender:
        sender.send_messages(azure.message("asked", session_id=lane.name, subject="s"))
    table = {"x-opt-session-id": lane.name}
    properties = pika.BasicProperties(type="s", headers=table)
    channel.basic_publish("witnessed", "", b"asked natively", properties)

    def session(of: Lane) -> Any:
        return of.client.get_subscription_receiver("witnessed", "sessions", session_id=lane.name)

    with session(lane) as receiver:
        found = take(receiver, 2)
        assert [str(each) for each in found] == ["asked", "asked natively"]
        assert {(each.session_id, each.subject) for each in found} == {(lane.name, "s")}
    with lane.client.get_topic_sender("witnessed") as sender:
        sender.send_messages(lane.message("answered", session_id=lane.name, subject="s"))
    with session(azure) as receiver:
        (message,) = take(receiver)
        assert (str(message), message.session_id) == ("answered", lane.name)
    for body in (b"asked", b"asked natively", b"answered"):
        _, properties, got = native_get(channel, "witnessed/subscriptions/native")
        assert (got, properties.type) == (body, "s")
        assert properties.headers["x-opt-session-id"] == lane.name


async def test_a_call_that_is_cancelled(bridge: Any) -> None:
    """A session that is given while nobody waits any more is free; what came the next call has."""
    queue = "cancelled"
    async with AsyncServiceBusClient(bridge.amqp_url, retry_total=0) as client:
        for wait_s in (0.01, 0.3):
            waiting = client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting.receive_messages(1), wait_s)
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("one", session_id="s"))
        began = time.monotonic()
        async with client.get_queue_receiver(
            queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SOON_S
        ) as receiver:
            for wait_s in (0.0001, 0.001, 0.002, 0.004):
                with contextlib.suppress(TimeoutError):
                    found = await asyncio.wait_for(receiver.receive_messages(1), wait_s)
                    await receiver.abandon_message(found[0])
            (message,) = await receiver.receive_messages(1)
            assert str(message) == "one"
            await receiver.complete_message(message)
        assert time.monotonic() - began < SOON_S


async def test_what_a_cancelled_call_would_have_deleted_is_not_lost(bridge: Any) -> None:
    """Calls are cancelled while messages come, then the session is closed: each comes once."""
    queue, texts = "deleted", [str(number) for number in range(40)]
    async with AsyncServiceBusClient(bridge.amqp_url, retry_total=0) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(text, session_id="s") for text in texts])
        found: list[str] = []
        while len(found) < len(texts):
            async with client.get_queue_receiver(
                queue,
                session_id=NEXT_AVAILABLE_SESSION,
                receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
                max_wait_time=SOON_S,
            ) as receiver:
                found += [str(each) for each in await receiver.receive_messages(1)]
                if len(found) < len(texts) - 5:
                    with contextlib.suppress(TimeoutError):
                        call = receiver.receive_messages(3)
                        found += [str(each) for each in await asyncio.wait_for(call, 0.002)]
        assert sorted(found, key=int) == texts


def test_a_call_that_ends_takes_nothing_from_the_next(bridge: Any, lane_name: str) -> None:
    """A message that comes while a call ends, or after it was cancelled, goes to the next call."""
    queue = f"cut-{lane_name}"
    with lane_of(lane_name, bridge) as lane:
        receiver = accepted(lane, queue)
        found: list[str] = []
        for number in range(5):
            assert receiver.receive_messages(3, max_wait_time=0.05) == []
            send(lane, queue, f"{number}a", f"{number}b")
            while len(found) < 2 * number + 2:
                for message in receive(receiver):
                    receiver.complete_message(message)
                    found.append(str(message))
        assert found == [f"{number}{letter}" for number in range(5) for letter in "ab"]
        receiver.close()
