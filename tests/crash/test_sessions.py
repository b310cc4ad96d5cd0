"""Two bridges whose clients receive sessions, killed again and again: order, counts, states.

What must hold: the messages of a session are first delivered in the order of their numbers, nothing
is lost, a completion that was answered stays, a count never falls, a session is one receiver's, and
a state that was stored is there.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from typing import Any

import pytest

from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.broker.queue_on_use import POINT
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from bridge.model.name import EntityPath
from tests.fixtures.broker import Broker
from tests.integration.door import Door, open_door
from tests.integration.session_door import SessionClient, bodies, send

pytestmark = pytest.mark.kills

QUEUE = model.Queue(
    name="orders",
    lock_duration_ms=5_000,
    max_delivery_count=1_000,
    requires_session=True,
    session_shards=4,
)
SESSIONS = 12
PATH = EntityPath("orders")

UNSURE_MS = 500
"""RabbitMQ confirms no acks: what was settled so short a time before a kill may be undone."""

POINTS = (
    "engine.again.published",
    "engine.again.confirmed",
    "engine.again.acked",
    "engine.complete.acked",
    "engine.session.acked",
)

Event = dict[str, Any]


class Worker:
    """One bridge with its clients (`session_worker`)."""

    def __init__(self, broker: Broker, endpoint: Endpoint, events: list[Event]) -> None:
        self.kills: list[int] = []
        self._arguments = (broker.url_of(endpoint.vhost), broker.management_url)
        self._events = events
        self._ready = threading.Event()

    def start(self, **environment: str) -> None:
        """Start it; returns when it works."""
        self._ready.clear()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.session_worker", *self._arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()
        assert self._ready.wait(120) or environment

    def kill(self) -> None:
        """End it at once."""
        self._process.send_signal(signal.SIGKILL)
        self.wait(120)

    def wait(self, within_s: float) -> bool:
        """Return whether it has ended."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        self.kills.append(now_ms())
        self._reader.join()
        return True

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["what"] == "ready":
                self._ready.set()
            self._events.append({**event, "process": process.pid})
        process.stdout.close()


def judge(events: list[Event], sent: dict[str, list[str]], kills: list[int]) -> None:
    """Check what was seen."""
    events = sorted((each for each in events if "at" in each), key=lambda each: each["at"])
    by_session: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_session[event["session"]].append(event)
    for session_id, wanted in sent.items():
        _judge_order(by_session[session_id], wanted)
        _judge_holders(by_session[session_id], kills)
        _judge_states(by_session[session_id])
    _judge_messages(events, kills)


def _judge_order(events: list[Event], wanted: list[str]) -> None:
    first = list(dict.fromkeys(each["body"] for each in events if each["what"] == "got"))
    assert first == wanted
    given_back: set[int] = set()
    last: dict[tuple[int, int], int] = {}
    for each in events:
        if each["what"] == "settling" and each["how"] != "Complete":
            given_back.add(each["number"])
        elif each["what"] == "got":
            receiver = each["process"], each["receiver"]
            earlier = last.get(receiver, 0)
            assert each["number"] > earlier or each["number"] in given_back, "out of order"
            last[receiver] = max(each["number"], earlier)
        elif each["what"] == "given":
            last[each["process"], each["receiver"]] = 0


def _judge_holders(events: list[Event], kills: list[int]) -> None:
    holder: Event | None = None
    for each in events:
        if each["what"] == "given":
            assert holder is None or any(at >= holder["at"] - 50 for at in kills), (
                f"{each} while {holder}"
            )
            holder = each
        elif each["what"] in ("closing", "lost") and _is_same(each, holder):
            holder = None


def _is_same(event: Event, holder: Event | None) -> bool:
    return holder is not None and all(
        event[name] == holder[name] for name in ("receiver", "process")
    )


def _judge_states(events: list[Event]) -> None:
    stored = 0
    for each in events:
        if each["what"] == "stored":
            stored = each["value"]
        elif each["what"] == "state":
            assert each["value"] >= stored, "a state is older than what was stored"


def _judge_messages(events: list[Event], kills: list[int]) -> None:
    counts: dict[int, int] = {}
    done: dict[int, int] = {}
    for each in events:
        number = each.get("number", 0)
        if each["what"] == "settled" and each["how"] == "Complete":
            done[number] = each["at"]
        elif each["what"] == "got":
            assert each["count"] >= counts.get(number, 0), "a count has fallen"
            counts[number] = each["count"]
            if number in done:
                undone = [at for at in kills if -50 < at - done[number] < UNSURE_MS]
                assert undone, f"{number} came after its completion"


async def _load(door: Door, sent: dict[str, list[str]], stop: asyncio.Event) -> None:
    chance, count = random.Random(0), 0
    while not stop.is_set():
        session_id = f"s{chance.randrange(SESSIONS)}"
        bodies = [f"{session_id}-{count + index}" for index in range(chance.randint(1, 5))]
        count += len(bodies)
        await send(door, session_id, *bodies)
        sent[session_id] += bodies
        await asyncio.sleep(0.01)


async def _drained(door: Door) -> None:
    """Wait until the queue is empty; a minute in which nothing leaves it is too long."""
    left = math.inf
    while left:
        async with asyncio.timeout(120):
            left = await _fewer_than(left, door)


async def _fewer_than(left: float, door: Door) -> int:
    """Wait until fewer messages are left; return how many."""
    while True:
        (counts,) = await door.namespace.counting.counts([QUEUE])
        if counts.active < left:
            return counts.active
        await asyncio.sleep(0.3)


async def besiege(endpoint: Endpoint, broker: Broker, points: list[str | None]) -> None:
    """Kill one of two bridges at each point (`None`: at any time), and judge."""
    events: list[Event] = []
    sent: dict[str, list[str]] = defaultdict(list)
    chance, stop = random.Random(1), asyncio.Event()
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        workers = [Worker(broker, endpoint, events) for _ in range(2)]
        for worker in workers:
            await asyncio.to_thread(worker.start)
        load = asyncio.create_task(_load(door, sent, stop))
        try:
            for point in points:
                await asyncio.sleep(chance.uniform(0.3, 1.5))
                worker = chance.choice(workers)
                await asyncio.to_thread(worker.kill)
                if point is not None:
                    await asyncio.to_thread(worker.start, BUSBRIDGE_FAILPOINT=f"{point}:3")
                    if not await asyncio.to_thread(worker.wait, 3):
                        await asyncio.to_thread(worker.kill)
                await asyncio.to_thread(worker.start)
            stop.set()
            await load
            await _drained(door)
        finally:
            load.cancel()
            for worker in workers:
                await asyncio.to_thread(worker.kill)
    kills = [at for worker in workers for at in worker.kills]
    judge(events, sent, kills)
    got = sum(each["what"] == "got" for each in events)
    total = sum(map(len, sent.values()))
    print(f"\n{len(points)} kills, {total} messages, {got} deliveries")


async def test_sessions_survive_kills(endpoint: Endpoint, broker: Broker) -> None:
    """At any time, and behind the steps of what a session's settlement publishes."""
    await besiege(endpoint, broker, [None, "engine.again.confirmed", None])


async def test_a_kill_as_the_queue_of_states_is_made_costs_nothing(
    endpoint: Endpoint, broker: Broker
) -> None:
    """The next bridge that needs the queue finds it without a fence, and goes on from there."""
    async with open_door(endpoint, broker.management_url, QUEUE) as door:
        worker = Worker(broker, endpoint, [])
        await asyncio.to_thread(worker.start, BUSBRIDGE_FAILPOINT=POINT)
        assert await asyncio.to_thread(worker.wait, 120)
        await send(door, "s0", "one")
        client = await SessionClient(door).accept("s0")
        (message,) = await client.receive()
        assert bodies([message]) == ["one"]
        await door.namespace.set_session_state(PATH, "s0", b"half")
        assert await door.namespace.session_state(PATH, "s0") == b"half"


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_sessions_survive_twenty_kills(endpoint: Endpoint, broker: Broker) -> None:
    """The same for longer, behind acks, too."""
    points: list[str | None] = [None] * 10 + [*POINTS, *POINTS]
    random.Random(2).shuffle(points)
    await besiege(endpoint, broker, points)


@pytest.fixture
def endpoint(broker: Broker, vhost: str) -> Endpoint:
    """The test's virtual host."""
    return parse_url(broker.url_of(vhost))
