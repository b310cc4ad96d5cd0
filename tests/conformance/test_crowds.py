"""What one client that is logged in costs the others: thousands of links and sessions, and memory.

Each turn of the loop takes 0.1 s of the processor at most; large input takes its size in memory,
and the memory is given back.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.cli.garbage import in_steps
from bridge.gateway.connection.connection import ClientConnection
from bridge.gateway.server import Gateway
from bridge.wire.amqp10.performatives import Attach, Begin, Close, Detach, End, Source, Target
from tests.conformance.client import Client, sas
from tests.conformance.door import KEY
from tests.conformance.probe import Probe, check, probing, undisturbed
from tests.conformance.served import gateway
from tests.conformance.test_storms import (
    CREDIT,
    LOGIN,
    REPLY_LINKS,
    attach,
    drain,
    flow,
    put_token,
)
from tests.fixtures.waiting import until
from tests.unit.machine.amqp10.peer import frame

COUNT = 4_900
"""The links or sessions of the client, beside those of its login; 5,000 is the most."""

FIRST = 10
TURN_S_MAX = 0.1
PATIENCE_S = 120.0
STILL = 10
"""So often the count of a client's tasks is the same before nothing more is expected."""

PART_BYTES = 200_000
PARTS = 1_200
MEGABYTE = 1 << 20

HANDLES = range(FIRST, FIRST + COUNT)

MAKE: dict[str, Callable[[], bytes]] = {
    "senders": lambda: b"".join(attach(each, "q", role=False) for each in HANDLES),
    "receivers": lambda: b"".join(attach(each, "q", role=True) for each in HANDLES),
    "receivers with credit": lambda: b"".join(
        attach(each, "q", role=True) + flow(handle=each, delivery_count=0, link_credit=10)
        for each in HANDLES
    ),
    "sessions": lambda: b"".join(
        frame(each, Begin(None, 0, 5_000, 5_000))
        + frame(each, Attach(name="x", handle=0, role=True, source=Source("q"), target=Target("x")))
        for each in HANDLES
    ),
}
OF_LINKS: dict[str, Callable[[], bytes]] = {
    "detached": lambda: b"".join(frame(0, Detach(each, True, None)) for each in HANDLES),
    "detached, the last first": lambda: b"".join(
        frame(0, Detach(each, True, None)) for each in reversed(HANDLES)
    ),
    "ended": lambda: frame(0, End()),
    "closed": lambda: frame(0, Close()),
    "lost": bytes,
}
OF_SESSIONS: dict[str, Callable[[], bytes]] = {
    "ended": lambda: b"".join(frame(each, End()) for each in HANDLES),
    "closed": lambda: frame(0, Close()),
    "lost": bytes,
}
QUICK = {
    ("senders", "closed"),
    ("receivers", "detached, the last first"),
    ("receivers with credit", "detached"),
    ("receivers with credit", "ended"),
    ("receivers with credit", "lost"),
    ("sessions", "closed"),
    ("sessions", "lost"),
}
"""Each kind and each end is among them."""

CASES = [
    pytest.param(
        *(made, over),
        id=f"{made} {over}",
        marks=() if (made, over) in QUICK else pytest.mark.long,
    )
    for made in MAKE
    for over in (OF_SESSIONS if made == "sessions" else OF_LINKS)
]


async def log_in(served: Gateway, port: int) -> tuple[ClientConnection, asyncio.StreamWriter]:
    """Connect a client that has put a token; what it gets is read, and no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(drain(reader))
    writer.write(LOGIN + REPLY_LINKS + CREDIT + put_token(0, KEY))
    await until(lambda: served.connections and not served.admission.unauthenticated)
    (connection,) = served.connections
    writer.reading = reading  # type: ignore[attr-defined]
    return connection, writer


async def quiet(served: Gateway, connection: ClientConnection) -> None:
    """Wait until the gateway has nothing more to do for a client but to wait."""
    counts: list[int] = []

    def is_quiet() -> bool:
        counts.append(len(connection.work.tasks))
        is_still = len(set(counts[-STILL:])) == 1 and len(counts) > STILL
        return is_still and not connection._input and not served.connections.endings

    await until(is_quiet, within_s=PATIENCE_S)


async def crowd(
    served: Gateway, port: int, make: bytes, over: bytes, probe: Probe
) -> tuple[float, float]:
    """Make links or sessions, then end them; return the longest turn of each."""
    connection, writer = await log_in(served, port)
    before = connection._endpoint.link_count
    probe.longest_s = 0.0
    writer.write(make)
    made = before + COUNT
    await until(lambda: connection._endpoint.link_count == made, within_s=PATIENCE_S)
    await quiet(served, connection)
    making_s, probe.longest_s = probe.longest_s, 0.0
    if over:
        writer.write(over)
    else:
        writer.transport.abort()
    await until(lambda: connection._endpoint.link_count <= before, within_s=PATIENCE_S)
    await quiet(served, connection)
    ending_s = probe.longest_s
    writer.transport.abort()
    await until(lambda: not served.connections)
    await writer.reading  # type: ignore[attr-defined]
    return making_s, ending_s


@pytest.mark.parametrize(("made", "over"), CASES)
@undisturbed
async def test_many_links_hold_up_nobody(made: str, over: str) -> None:
    """Neither while they are attached nor when they end together, in whatever way."""
    make = MAKE[made]()
    end = (OF_SESSIONS if made == "sessions" else OF_LINKS)[over]()
    with in_steps():
        async with gateway() as (served, port):
            with probing() as probe:
                making_s, ending_s = await crowd(served, port, make, end, probe)
    check(making_s, TURN_S_MAX)
    check(ending_s, TURN_S_MAX)


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has of the system."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4_096


async def test_unfinished_messages_take_their_size_in_memory_which_is_given_back() -> None:
    """240 MB of messages whose last parts never come, on 1,200 links, and the client leaves."""
    alone = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.conformance.lone_gateway"), stdin=-1, stdout=-1
    )
    try:
        assert alone.stdin is not None
        assert alone.stdout is not None
        port = int(await alone.stdout.readline())
        peer = await (await Client.connect(port)).open()
        assert await peer.put_token(sas()) == 202
        before = resident_bytes(alone.pid)
        for handle in range(FIRST, FIRST + PARTS):
            peer.attach(handle, "q", role=False)
            peer.transfer(handle, bytes(PART_BYTES), more=True)
            await peer._writer.drain()
        assert await peer.put_token(sas()) == 202  # the gateway has read all of it
        held = resident_bytes(alone.pid) - before
        assert PARTS * PART_BYTES / 2 < held < 2 * PARTS * PART_BYTES
        await peer.close()
        await until(lambda: resident_bytes(alone.pid) < before + 32 * MEGABYTE, within_s=PATIENCE_S)
    finally:
        assert alone.stdin is not None
        alone.stdin.close()
        await alone.wait()


async def test_links_that_have_ended_leave_no_cycles() -> None:
    """Their memory is freed at once, and waits for no collection of the garbage."""
    async with gateway() as (served, port):
        connection, writer = await log_in(served, port)
        gc.collect()
        gc.disable()
        try:
            for over in (OF_LINKS["detached"](), OF_LINKS["ended"]()):
                writer.write(MAKE["receivers with credit"]())
                made = connection._endpoint.link_count + COUNT
                await until(lambda made=made: connection._endpoint.link_count == made)
                writer.write(over)
                await until(lambda made=made: connection._endpoint.link_count < made - COUNT + 1)
                await quiet(served, connection)
            assert gc.collect() < COUNT
        finally:
            gc.enable()
        writer.transport.abort()
        await until(lambda: not served.connections)
        await writer.reading  # type: ignore[attr-defined]
