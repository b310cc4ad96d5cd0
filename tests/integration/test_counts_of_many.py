"""Counting the messages of many entities: what it asks of RabbitMQ, and that it is true."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

import pamqp.base
import pytest

from bridge.broker import ready_counts
from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.engine import counting
from bridge.engine.api import DeadLetter, Defer
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from bridge.model.counts import Counts
from bridge.model.errors import ServerBusy
from bridge.model.name import EntityPath
from tests.fixtures.broker import Broker
from tests.fixtures.relay import Relay
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.test_ready_counts import standing_still

PAGE = 100

DELAY_S = 0.25
"""How much later everything arrives, each way, where round trips are counted."""

ROUND_TRIPS_MAX = 20
"""One after another, for a page, and as much time as a busy machine adds: some ten are needed. One
question for each queue would make three hundred."""

_REQUEST = re.compile(rb"(?:GET|PUT|POST|DELETE) /api/(\S*) HTTP/1.1\r\n")


@dataclass
class Asked:
    """What the bridge asks RabbitMQ.

    Attributes:
        methods: AMQP methods, by name.
        requests: those to the management API, by the first part of their path.
        delay_s: how much later requests to the management API arrive, and their answers.
    """

    methods: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    delay_s: float = 0.0

    def note(self, method: pamqp.base.Frame) -> bool:
        """Note a method; hold none back."""
        self.methods[method.name] += 1
        return False

    def taken(self) -> dict[str, int]:
        """Return what declares and requests were made since the last call."""
        found = {"declares": self.methods["Queue.Declare"], **self.requests}
        self.methods.clear()
        self.requests.clear()
        return found

    async def pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_asking: bool
    ) -> None:
        """Pass on one side of a connection to the management API."""
        with contextlib.suppress(ConnectionError):
            while chunk := await source.read(1 << 20):
                for path in _REQUEST.findall(chunk) if is_asking else ():
                    self.requests[path.decode().partition("/")[0].partition("?")[0]] += 1
                await asyncio.sleep(self.delay_s)
                target.write(chunk)
        target.close()


@asynccontextmanager
async def listened_to(
    broker: Broker, vhost: str, *queues: model.Queue
) -> AsyncIterator[tuple[Door, Asked, Relay]]:
    """A bridge, and what it asks."""
    asked = Asked()
    sides: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []
    parts = urlsplit(broker.management_url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        answers, questions = await asyncio.open_connection(parts.hostname, parts.port)
        writers.append(questions)
        for side in ((reader, questions, True), (answers, writer, False)):
            sides.append(asyncio.create_task(asked.pass_on(*side)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}"
    try:
        with Relay(broker.url_of(vhost), holds=asked.note) as relay:
            async with open_door(parse_url(relay.url), url, *queues) as door:
                yield door, asked, relay
    finally:
        server.close()
        for side in sides:
            side.cancel()
        await asyncio.gather(*sides, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)


def queues_of(numbers: range) -> list[model.Queue]:
    """Queues with these numbers."""
    return [model.Queue(name=f"queue-{number:04}") for number in numbers]


@pytest.mark.long
async def test_a_page_of_a_hundred_costs_rabbitmq_the_same_beside_a_hundred_and_three_hundred(
    broker: Broker, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same requests, and no more of them one after another."""
    monkeypatch.setattr(counting, "FIGURES_S", 0.0)  # each page lists the sizes anew
    # Where RabbitMQ is so far away, an answer that takes half a second is no doubtful one.
    monkeypatch.setattr(ready_counts, "WAITS_S", 60.0)
    monkeypatch.setattr(counting, "COUNT_S", 60.0)
    monkeypatch.setattr(counting, "FIRST_S", 60.0)
    monkeypatch.setattr(counting, "FIGURES_WAIT_S", 60.0)
    async with listened_to(broker, vhost, *queues_of(range(PAGE))) as (door, asked, relay):
        page = door.namespace.directory.namespace.queues[:PAGE]
        assert len(page) == PAGE
        beside = []
        for others in (0, 200):
            made = queues_of(range(PAGE, PAGE + others))
            await door.namespace.apply(model.Namespace(queues=tuple(made)))
            assert len(door.namespace.directory.namespace.queues) == PAGE + others
            await _leads(door, PAGE + others)
            await door.namespace.counting.counts(page)  # opens connections
            beside.append(await _cost(door, asked, relay, page))
        # A poll of the definitions, and queues that are slow to answer, may add a few.
        assert all(beside[1][kind] <= 1.1 * count + 2 for kind, count in beside[0].items()), beside
        assert beside[0]["declares"] <= 3 * PAGE


async def _leads(door: Door, count: int) -> None:
    """Wait until a bridge leads so many entities."""
    await until(lambda: len(door.sidecar.leading) == count)


async def _cost(
    door: Door, asked: Asked, relay: Relay, page: tuple[model.Queue, ...]
) -> dict[str, int]:
    """What a page costs at least: the poll of the definitions may ask something meanwhile."""
    costs = []
    for _ in range(2):
        asked.taken()
        relay.delay_s = asked.delay_s = DELAY_S
        begin_s = time.monotonic()
        counts = await door.namespace.counting.counts(page)
        took_s = time.monotonic() - begin_s
        relay.delay_s = asked.delay_s = 0.0
        costs.append({**asked.taken(), "round trips": int(took_s / (2 * DELAY_S))})
        assert [each.is_old for each in counts] == [False] * PAGE
    kinds = set(costs[0]).intersection(*costs)
    cost = {kind: min(each[kind] for each in costs) for kind in kinds}
    assert cost.pop("round trips") <= ROUND_TRIPS_MAX, costs
    return cost


async def test_twenty_who_count_a_page_at_once_cost_as_much_as_two(
    broker: Broker, vhost: str
) -> None:
    """Callers that ask while one count is under way share the next one."""
    async with listened_to(broker, vhost, *queues_of(range(20))) as (door, asked, _):
        page = door.namespace.directory.namespace.queues
        await door.namespace.counting.counts(page)
        asked.taken()
        await door.namespace.counting.counts(page)
        once = asked.taken()
        await asyncio.gather(*(door.namespace.counting.counts(page) for _ in range(20)))
        found = asked.taken()
        assert found["declares"] <= 2 * once["declares"]


async def test_a_page_is_true_in_every_state_at_the_bridge_that_leads_nothing(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Active, locked at either bridge, scheduled, deferred, dead; beside many that are empty."""
    urls = endpoint, broker.management_url
    async with open_door(*urls, *queues_of(range(20))) as leads, open_door(*urls) as other:
        path = EntityPath("queue-0007")
        for number in range(9):
            await leads.namespace.send(path, [outgoing(str(number))])
        later_ms = now_ms() + 3_600_000
        batch = [outgoing("later", scheduled_ms=later_ms) for _ in range(4)]
        await other.namespace.schedule(path, batch)
        here, there = leads.client(path=path), other.client(path=path)
        held = await here.receive(3)
        (dead,) = await there.receive(1)
        assert dead.lock_token is not None
        assert held[0].lock_token is not None
        await other.namespace.settle(path, dead.lock_token, DeadLetter())
        await leads.namespace.settle(path, held[0].lock_token, Defer())
        await there.receive(1)
        wanted = Counts(active=7, dead_letter=1, scheduled=4, deferred=1)
        for door in (leads, other):
            await until(partial(_is_counted, door, path.entity, wanted))


async def _is_counted(door: Door, name: str, wanted: Counts) -> bool:
    """Whether a queue has these counts, and all others nothing."""
    page = door.namespace.directory.namespace.queues
    counts = map(_without_size, await door.namespace.counting.counts(page))
    return all(
        found == (wanted if each.name == name else Counts())
        for each, found in zip(page, counts, strict=True)
    )


def _without_size(counts: Counts) -> Counts:
    return Counts(
        active=counts.active,
        dead_letter=counts.dead_letter,
        scheduled=counts.scheduled,
        deferred=counts.deferred,
        is_old=counts.is_old,
    )


@pytest.mark.long
async def test_the_first_counts_of_a_silent_queue_are_rabbitmqs_own_and_said_to_be_old(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """Zero is never said for it; a queue without any figures is refused, and it alone."""
    orders, other = model.Queue(name="orders"), model.Queue(name="other")
    async with open_door(endpoint, broker.management_url, orders, other) as door:
        await door.send("a", "b", "c")
        path = f"/api/queues/{vhost}/orders"

        async def has_figures() -> bool:
            row = await asyncio.to_thread(broker.management, "GET", path)
            return bool(row.get("messages") == 3)

        await until(has_figures)
        async with standing_still(broker, vhost):
            found = await door.namespace.counting.counts([orders, other])
            assert [(each.active, each.is_old) for each in found] == [(3, True), (0, False)]
        await until(lambda: _is_true(door, orders))


async def _is_true(door: Door, queue: model.Queue) -> bool:
    (counts,) = await door.namespace.counting.counts([queue])
    return (counts.active, counts.is_old) == (3, False)


async def test_counts_of_which_nothing_is_known_are_refused(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure's condition for it is server-busy, which clients try again."""
    orders = model.Queue(name="orders")
    async with open_door(endpoint, broker.management_url, orders) as door:
        with monkeypatch.context() as patch:
            patch.setattr(counting, "FIRST_S", 0.0)
            with pytest.raises(ServerBusy, match="'orders'"):
                await door.namespace.counting.counts([orders])
        (counts,) = await door.namespace.counting.counts([orders])
        assert counts == Counts()
