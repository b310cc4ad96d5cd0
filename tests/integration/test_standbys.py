"""Two of several bridges consume each inbox; bridges come, go and are killed under load."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError
from bridge.broker.management.api import Management
from bridge.engine.namespace import RabbitNamespace
from bridge.machine.inbox.standbys import StandbyNotice, Standbys, Times, digest
from bridge.model import entity as model
from bridge.sidecar.sidecar import Sidecar
from bridge.testing.process import Bridge
from bridge.topology import names
from bridge.topology.shards import in_order_of_choice
from bridge.wire import envelope
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item, Operation
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually, until

ENTITIES = [f"orders-{number}" for number in range(24)]
FEW = len(ENTITIES) // 12
BARE = Properties(delivery_mode=2).encode()

Start = Callable[[], Bridge]


@pytest.fixture
def start(broker: Broker, vhost: str, tmp_path: Path) -> Iterator[Start]:
    """Start bridges without a gateway on one virtual host."""
    queues = [{"Name": name, "Properties": {}} for name in ENTITIES]
    form = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": queues}]}}
    config = tmp_path / "config.json"
    config.write_text(json.dumps(form))
    with ExitStack() as ends:

        def start() -> Bridge:
            bridge = bridge_of(broker, vhost, config=config, command="sidecar")
            ends.callback(bridge.kill)
            bridge.start()
            return bridge

        yield start


def led(bridge: Bridge) -> set[str]:
    """Return the entities that a bridge leads."""
    found = re.findall(r'busbridge_sequencer_active\{entity="(.+)"\} 1\.0', bridge.get("/metrics"))
    return set(found)


def all_led(*bridges: Bridge) -> bool:
    """Whether each entity has one leader among these bridges."""
    counts = Counter(name for bridge in bridges for name in led(bridge))
    return counts == Counter(ENTITIES)


def consumers(broker: Broker, vhost: str) -> dict[str, int]:
    """Return the number of consumers of each inbox."""
    rows = broker.management("GET", f"/api/consumers/{vhost}")
    counts = Counter(str(row["queue"]["name"]) for row in rows)
    return {name: counts[names.inbox(name)] for name in ENTITIES}


def is_shared(broker: Broker, vhost: str, *bridges: Bridge) -> bool:
    """Whether each of the bridges leads some entities, and each inbox has two consumers."""
    return (
        all_led(*bridges)
        and all(len(led(bridge)) >= FEW for bridge in bridges)
        and set(consumers(broker, vhost).values()) == {2}
    )


class Load:
    """A door that sends to all entities without a pause, and a witness of what comes out."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._sent: dict[str, list[bytes]] = {name: [] for name in ENTITIES}
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        eventually(lambda: self._sent[ENTITIES[-1]], "something was sent to each entity")
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for count in itertools.count():
                for name in ENTITIES:
                    body = f"{name} {count}".encode()
                    raw = envelope.encode(
                        Operation.SEND, uuid.uuid4().bytes, [Item(BARE, body, None, None, None)]
                    )
                    properties = pika.BasicProperties(
                        headers={"x-busbridge-kind": "envelope"}, delivery_mode=2
                    )
                    channel.basic_publish(names.front(name), "", raw, properties, mandatory=True)
                    self._sent[name].append(body)
                if self._over.wait(0.15):
                    return

    def judge(self) -> None:
        """Fail unless each message that was sent has a number of its own, without gaps."""
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            for name in ENTITIES:
                self._judge_one(connection, name)

    def _judge_one(self, connection: pika.BlockingConnection, name: str) -> None:
        numbered: dict[int, bytes] = {}
        wanted = set(self._sent[name])
        channel = connection.channel()
        end_s = time.monotonic() + 120
        while set(numbered.values()) != wanted:
            assert time.monotonic() < end_s, (name, len(numbered), len(wanted))
            method, properties, body = channel.basic_get(names.active_queue(name), auto_ack=True)
            if method is None:
                connection.sleep(0.05)
                continue
            number: Any = properties.headers["x-opt-sequence-number"]
            assert numbered.setdefault(number, body) == body, f"{name}: {number} is two messages"
        assert sorted(numbered) == list(range(1, len(wanted) + 1)), f"{name}: a gap, or a double"
        channel.close()


@pytest.mark.long
def test_two_bridges_share_the_entities_and_each_stands_by_for_the_other(
    broker: Broker, vhost: str, start: Start
) -> None:
    """The first one hands over to the second in order; then either is killed."""
    first = start()
    eventually(lambda: all_led(first))
    with Load(broker.url_of(vhost)) as load:
        second = start()
        eventually(lambda: is_shared(broker, vhost, first, second))
        lost = led(first)
        first.kill()
        eventually(lambda: lost <= led(second), "the standby leads what the killed bridge led")
    load.judge()
    assert json.loads(second.get("/health/ready"))["reasons"] == []


@pytest.mark.long
def test_of_three_bridges_two_are_killed_at_once(broker: Broker, vhost: str, start: Start) -> None:
    """The third one begins to consume what only those consumed."""
    bridges = [start() for _ in range(3)]
    eventually(lambda: is_shared(broker, vhost, *bridges))
    with Load(broker.url_of(vhost)) as load:
        for killed in bridges[:2]:
            killed.kill()
        eventually(lambda: all_led(bridges[2]), "the third one leads everything")
    load.judge()
    eventually(lambda: set(consumers(broker, vhost).values()) == {1})


@pytest.mark.long
def test_three_bridges_are_restarted_one_after_the_other(
    broker: Broker, vhost: str, start: Start
) -> None:
    """In the end the entities are shared again."""
    bridges = [start() for _ in range(3)]
    with Load(broker.url_of(vhost)) as load:
        for _ in range(3):
            bridges.pop(0).stop()
            bridges.append(start())
            eventually(lambda: all_led(*bridges))
        eventually(lambda: is_shared(broker, vhost, *bridges))
    load.judge()


@asynccontextmanager
async def at_work(
    endpoint: Endpoint, management: Management, *, is_member: bool = True, consumes: bool = True
) -> AsyncIterator[tuple[RabbitNamespace, Sidecar]]:
    """A bridge in this process.

    Args:
        is_member: otherwise it is as an older one: it tells nothing, and consumes everything.
        consumes: otherwise it is known to the others, and consumes nothing.
    """
    namespace = RabbitNamespace(endpoint, management)
    if is_member:
        namespace.membership.standbys = Standbys(
            namespace.membership.standbys.own, Times(steady_s=0.5, term_min_s=0.5)
        )
    standbys = namespace.membership.standbys if is_member else None
    sidecar = Sidecar(endpoint, standbys=standbys)
    namespace.membership.on_changed = sidecar.choice.wake
    sidecar.choice.on_changed = namespace.membership.wake
    namespace.directory.follow(sidecar.follow)
    await namespace.start()
    queues = tuple(model.Queue(name=name) for name in ENTITIES)
    await namespace.apply(model.Namespace(queues=queues))
    works = []
    if is_member:
        works.append(asyncio.create_task(namespace.membership.run()))
    if consumes:
        works.append(asyncio.create_task(sidecar.run()))
    try:
        yield namespace, sidecar
    finally:
        await sidecar.stop()
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await namespace.close()


def leading(sidecar: Sidecar) -> set[str]:
    """Return the entities that a sidecar of this process leads."""
    return {leader.name for leader in sidecar.leading}


async def test_beside_an_older_bridge_everything_has_a_leader(
    endpoint: Endpoint, broker: Broker
) -> None:
    """The older one keeps its entities; the others share them when it is gone."""
    async with (
        Management(endpoint, broker.management_url) as management,
        at_work(endpoint, management, is_member=False) as (_, older),
    ):
        await until(lambda: leading(older) == set(ENTITIES))
        async with (
            at_work(endpoint, management) as (_, first),
            at_work(endpoint, management) as (_, second),
        ):
            await first.connected.wait()
            await until(lambda: not first.leaderless and not second.leaderless)
            assert leading(older) == set(ENTITIES)
            await older.stop()
            await until(lambda: leading(first) | leading(second) == set(ENTITIES))
            await until(lambda: len(leading(first)) >= FEW and len(leading(second)) >= FEW)


async def test_a_bridge_that_consumes_nothing_is_not_waited_for(
    endpoint: Endpoint, broker: Broker
) -> None:
    """The others know it, and it may be first or second, and does not say that it stands by."""
    async with (
        Management(endpoint, broker.management_url) as management,
        at_work(endpoint, management, consumes=False),
        at_work(endpoint, management, consumes=False),
        at_work(endpoint, management) as (namespace, working),
    ):
        await until(lambda: len(namespace.membership.standbys.others) == 2)
        await until(lambda: leading(working) == set(ENTITIES))
        assert not working.reasons


@pytest.mark.long
async def test_a_takeover_needs_no_listing(
    endpoint: Endpoint, broker: Broker, vhost: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ elects the standby, which consumes already: the management API may be away."""

    async def is_away(*path: str, **columns: object) -> None:
        raise BrokerError(text="the management API is away")

    killed = start()
    eventually(lambda: all_led(killed))
    async with (
        Management(endpoint, broker.management_url) as management,
        at_work(endpoint, management) as (namespace, standby),
    ):
        await until(lambda: set(consumers(broker, vhost).values()) == {2})
        monkeypatch.setattr(management, "_rows", is_away)
        await asyncio.to_thread(killed.kill)
        await until(lambda: leading(standby) == set(ENTITIES))
        assert not standby.leaderless
        await until(lambda: not namespace.membership.standbys.others)


async def test_an_entity_that_no_known_bridge_consumes_is_named(
    endpoint: Endpoint, broker: Broker
) -> None:
    """By a bridge that does not consume it itself; a while later it does."""
    others = [bytes([number]) * 16 for number in (1, 2)]
    everything = tuple(map(digest, ENTITIES))
    async with (
        Management(endpoint, broker.management_url) as management,
        at_work(endpoint, management, consumes=False) as (namespace, sidecar),
    ):
        standbys = namespace.membership.standbys
        for other in others:
            standbys.hear(other, StandbyNotice(True, everything))
        working = asyncio.create_task(sidecar.run())
        live = [standbys.own, *others]
        ranks = {name: in_order_of_choice(live, names.inbox(name)) for name in ENTITIES}
        here = {name for name in ENTITIES if standbys.own in ranks[name][:2]}
        await until(lambda: leading(sidecar) == here)
        assert not sidecar.leaderless
        for other in others:
            standbys.hear(other, StandbyNotice(False, (), everything))
        sidecar.choice.wake()
        await until(lambda: set(sidecar.leaderless) == set(ENTITIES) - here)
        await until(lambda: leading(sidecar) == set(ENTITIES))
        assert not sidecar.leaderless
        await sidecar.stop()
        await working
