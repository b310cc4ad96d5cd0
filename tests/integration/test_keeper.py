"""What a killed process has written still arrives."""

from __future__ import annotations

import asyncio
import mmap
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from bridge.broker import keeping
from bridge.broker.channel import Channel
from bridge.broker.connection import Connection
from bridge.broker.endpoint import Endpoint, parse_url
from bridge.broker.keeper import Keeper
from bridge.broker.keeping import LINGER_S
from bridge.broker.pledge import Pledge
from bridge.broker.will import Will
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.integration.inbox import QUORUM, WITHIN_S, eventually

COUNT = 500
MESSAGES = 3_000
PLAIN = Properties(delivery_mode=2).encode()


async def idle(channel: Channel, queue: str, least: int) -> int:
    """Wait until the queue has no consumer and that many messages; return how many it has then."""
    ready = -1

    async def is_idle() -> bool:
        nonlocal ready
        before = ready
        state = await channel.declare_queue(queue, passive=True)
        ready = state.messages
        return state.consumers == 0 and ready >= least and ready == before

    await eventually(is_idle)
    return ready


async def fill(channel: Channel) -> None:
    """Make the queue `q` with more messages than are taken."""
    await channel.declare_queue("q", arguments=QUORUM)
    for _ in range(MESSAGES - 1):
        channel.publish("", "q", PLAIN, bytes(1024))
    await channel.publish_confirmed("", "q", PLAIN, b"last")


async def settle_and_die(url: str, just_before: Callable[[], None]) -> None:
    """Have a process take messages, settle some and die when it is sure of that."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.settler", url, "q", str(COUNT)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"taken\n"
    just_before()
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), WITHIN_S) == -signal.SIGKILL


async def test_what_is_sure_stays_settled_after_a_kill(
    broker: Broker, vhost: str, confirming: Channel
) -> None:
    """Acks that the process was sure of are applied, though deliveries were left unread."""
    await fill(confirming)
    await settle_and_die(broker.url_of(vhost), lambda: None)
    assert await idle(confirming, "q", MESSAGES - COUNT) == MESSAGES - COUNT


async def test_what_is_sure_stays_settled_though_rabbitmq_stands_still(
    start_broker: Callable[[], Broker],
) -> None:
    """RabbitMQ does not run while the process settles and dies, and goes on a while after."""
    node = start_broker().node
    assert node is not None
    connection = await Connection.open(parse_url(node.url), name="witness")
    channel = await connection.channel()
    await channel.confirm_select()
    await fill(channel)
    await settle_and_die(node.url, lambda: node.signal(signal.SIGSTOP))
    await asyncio.sleep(2 * LINGER_S)
    node.signal(signal.SIGCONT)
    assert await idle(channel, "q", MESSAGES - COUNT) == MESSAGES - COUNT
    await connection.close()


async def test_what_a_killed_process_has_bequeathed_is_published(
    broker: Broker, vhost: str, confirming: Channel
) -> None:
    """Behind all that it published itself; what it has withdrawn is not."""
    for queue in ("q", "alive"):
        await confirming.declare_queue(queue)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.testator", broker.url_of(vhost), "q")
    )
    assert await asyncio.wait_for(process.wait(), WITHIN_S) == -signal.SIGKILL
    await idle(confirming, "alive", 0)

    async def has_come() -> bool:
        return (await confirming.declare_queue("q", passive=True)).messages >= 3

    await eventually(has_come)
    first, *others = [await confirming.get("q") for _ in range(4)]
    assert first is not None
    assert first.body == b"last"
    assert {each.body for each in others if each is not None} == {b"left", b"instead"}


@pytest.mark.parametrize("is_told", [True, False])
async def test_what_was_bequeathed_is_published_when_its_time_has_come(
    endpoint: Endpoint, confirming: Channel, is_told: bool
) -> None:
    """Not when RabbitMQ ended the dead process' connection before: much may have been lost then."""
    await confirming.declare_queue("q")
    will = Will(endpoint)
    will.put("", "q", PLAIN, b"last words")
    executor = keeping.begin_execution(keeping.read_lines(will.descriptor))
    assert executor is not None
    if is_told:
        await asyncio.to_thread(keeping.end_execution, executor, time.monotonic() + WITHIN_S)
    else:
        await asyncio.to_thread(executor.communicate)
    assert executor.returncode == (0 if is_told else 1)
    will.close()

    assert (await confirming.declare_queue("q", passive=True)).messages == is_told


def test_what_rabbitmq_says_meanwhile_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its channels do nothing else while they cannot say it."""
    monkeypatch.setattr(keeping, "LINGER_S", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    number = ours.detach()
    with ThreadPoolExecutor(1) as beside, theirs:
        lingering = beside.submit(keeping.linger, {number: keeping.Kept(keeping.SOCKET, [number])})
        theirs.settimeout(1)
        theirs.sendall(bytes(64 << 20))
        assert not lingering.done()
        theirs.settimeout(WITHIN_S)
        assert theirs.recv(1) == b""
        theirs.shutdown(socket.SHUT_WR)
        lingering.result(WITHIN_S)


@pytest.mark.parametrize("written", [0, 1, 60, 100])
def test_a_pledge_is_redeemed_from_where_the_kernel_has_it(written: int) -> None:
    """Whatever was written of it before the kill, the peer reads it once and whole."""
    data = bytes(range(100))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as ours:
            theirs, _ = listener.accept()
            ours.sendall(b"before")
            pledge = Pledge(ours, len(b"before"))
            assert pledge.add(data[:70], len(b"before"))
            assert pledge.add(data[70:], len(b"before"))
            ours.sendall(data[:written])
            with mmap.mmap(pledge.descriptor, keeping.PLEDGE_BYTES) as memory:
                keeping.redeem(ours, memory)
                keeping.redeem(ours, memory)
            pledge.close()
        with theirs, theirs.makefile("rb") as stream:
            assert stream.read() == b"before" + data


def test_an_older_pledge_is_not_redeemed_again() -> None:
    """What was written after it shows that it was kept."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as ours:
            theirs, _ = listener.accept()
            pledge = Pledge(ours, 0)
            assert pledge.add(b"promised", 0)
            ours.sendall(b"promised, and more")
            with mmap.mmap(pledge.descriptor, keeping.PLEDGE_BYTES) as memory:
                keeping.redeem(ours, memory)
            pledge.close()
        with theirs, theirs.makefile("rb") as stream:
            assert stream.read() == b"promised, and more"


def test_too_much_is_not_promised() -> None:
    """The memory is of one size; what is larger is written first, as ever."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        pledge = Pledge(ours, 0)
        assert not pledge.add(bytes(keeping.PLEDGE_BYTES_MAX + 1), 0)
        assert pledge.add(bytes(keeping.PLEDGE_BYTES_MAX), 0)
        assert not pledge.add(b"x", 0)
        pledge.close()


async def kept(endpoint: Endpoint, keeper: Keeper) -> Connection:
    """Return a connection that a keeper holds."""
    keeper.start()
    connection = await Connection.open(endpoint, name="kept")
    connection.keep(keeper)

    async def is_kept() -> bool:
        return connection.is_kept

    await eventually(is_kept)
    return connection


async def test_a_connection_that_is_closed_is_not_kept(endpoint: Endpoint) -> None:
    """Closing ends the connection at once, whoever holds a duplicate of its socket."""
    keeper = Keeper()
    connection = await kept(endpoint, keeper)
    await asyncio.wait_for(connection.close(), 2)
    await keeper.close()
    assert not keeper.is_alive


async def test_without_its_keeper_a_connection_is_not_kept(endpoint: Endpoint) -> None:
    """A keeper that was killed keeps nothing, and that is known."""
    keeper = Keeper()
    connection = await kept(endpoint, keeper)

    async def is_not_kept() -> bool:
        return not connection.is_kept

    assert keeper._process is not None
    keeper._process.kill()
    await eventually(is_not_kept)
    channel = await connection.channel()
    await channel.barrier()
    await connection.close()
    await keeper.close()
