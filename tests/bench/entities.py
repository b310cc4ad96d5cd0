"""A thousand entities: made from a file, started again, taken over, and idle.

The peers are plain pika, which declares the same objects one after another, and the same bridge
with ten entities.

    python -m tests.bench.entities [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bridge.broker.node.installation import Installation
from bridge.model import entity as model
from bridge.testing.process import Bridge
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.resources import Topology
from tests.bench.figure import Figure, report
from tests.bench.rabbit import Bench, bench, installations
from tests.bench.server import emulator_config
from tests.integration.declared import declare

FEW = 10
SOME = int(os.environ.get("ENTITIES_SOME", "500"))
MANY = int(os.environ.get("ENTITIES_MANY", "1_000"))
MOST = int(os.environ.get("ENTITIES_MOST", "3_000"))
PEERS = 100
"""Entities of plain pika; its time is taken for as many as the bridge has."""

READY_S = 120.0
RESTART_S = 10.0
RECEIVED_S = 15.0
TAKEOVER_S = 5.0
OF_PEER = 1.5
STALL_S = 1.0
"""The longest stall, by the bridge's own timer; other processes' work is in it."""

IDLE_S = 30.0
WAIT_S = 120.0
ACTIVE = re.compile(r"^busbridge_sequencer_active\{.*\} 1\.0$", re.MULTILINE)
LONGEST = re.compile(r"^busbridge_loop_stall_longest_seconds ([0-9.e+-]+)$", re.MULTILINE)


def main() -> int:
    """Run and report; 1 when a figure is on the wrong side of its bound."""
    figures: list[Figure] = []
    for installation in installations(sys.argv[1:]):
        for measure in (_few, _taken_over, _many, _most):
            figures += asyncio.run(_on_node(installation, measure))
    return 0 if report("Entities", figures) else 1


async def _on_node(
    installation: Installation, measure: Callable[[Bench], list[Figure]]
) -> list[Figure]:
    async with bench(installation) as rabbit:
        return await asyncio.to_thread(measure, rabbit)


@contextmanager
def _bridge(rabbit: Bench, count: int) -> Iterator[Bridge]:
    """A bridge with this many queues from a file, not started yet."""
    names = [f"orders-{number:04}" for number in range(count)]
    with tempfile.TemporaryDirectory(prefix="busbridge-bench-") as folder:
        config = Path(folder) / "Config.json"
        config.write_text(emulator_config(names))
        port = rabbit.node.endpoint.hosts[0][1]
        url = f"amqp://guest:guest@127.0.0.1:{port}"
        made = Bridge(
            (
                *("--rabbitmq-url", url, "--management-url", rabbit.node.management_url),
                *("--config", str(config), "--log-level", "warning"),
            ),
            amqp_url=url,
        )
        try:
            yield made
        finally:
            made.kill()


def _started_s(bridge: Bridge) -> float:
    begun_s = time.monotonic()
    bridge.start()
    return time.monotonic() - begun_s


def _metrics(bridge: Bridge) -> str:
    with urllib.request.urlopen(f"{bridge.admin_url}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def _leads(bridge: Bridge) -> int:
    return len(ACTIVE.findall(_metrics(bridge)))


def _wait(condition: Callable[[], bool]) -> float:
    """Wait for a condition; return how long that took."""
    begun_s = time.monotonic()
    while not condition():
        if time.monotonic() - begun_s > WAIT_S:
            raise TimeoutError("not in time")
        time.sleep(0.05)
    return time.monotonic() - begun_s


def _cpu_s(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _idle(rabbit: Bench, bridge: Bridge, count: int) -> list[Figure]:
    """Return the processor time of an idle minute."""
    before = rabbit.cpu_s(), _cpu_s(bridge.pid)
    time.sleep(IDLE_S)
    used = rabbit.cpu_s() - before[0], _cpu_s(bridge.pid) - before[1]
    return [
        Figure(
            name=f"processor time of an idle minute, {whose}, {count:,} entities",
            unit="s",
            ours=each * 60 / IDLE_S,
            rabbitmq=rabbit.version,
        )
        for whose, each in zip(("RabbitMQ", "the bridge"), used, strict=True)
    ]


def _few(rabbit: Bench) -> list[Figure]:
    with _bridge(rabbit, FEW) as bridge:
        bridge.start()
        _wait(lambda: _leads(bridge) == FEW)
        return _idle(rabbit, bridge, FEW)


def _taken_over(rabbit: Bench) -> list[Figure]:
    """Two bridges with 500 entities; one of them is killed."""
    with _bridge(rabbit, SOME) as one, _bridge(rabbit, SOME) as other:
        one.start()
        other.start()
        _wait(lambda: _leads(one) + _leads(other) == SOME)
        led = _leads(one)
        one.kill()
        took_s = _wait(lambda: _leads(other) == SOME)
    return [
        _bound(f"{SOME} entities led again after a kill of one of two bridges", took_s, TAKEOVER_S),
        Figure(name="  of which the killed one led", unit="", ours=led),
    ]


def _many(rabbit: Bench) -> list[Figure]:
    """1,000 entities: made, idle, and started again after a kill."""
    peer_s = _peer_s(rabbit)
    with _bridge(rabbit, MANY) as bridge:
        ready_s = _started_s(bridge)
        figures = [
            _bound(f"{MANY:,} new entities from a file: ready", ready_s, READY_S),
            Figure(
                name="  beside plain pika, which declares the same objects",
                unit="s",
                ours=ready_s,
                peer=f"pika ({PEERS} measured)",
                peers=peer_s,
                ratio=ready_s / peer_s,
                floor=OF_PEER,
                is_ceiling=True,
                rabbitmq=rabbit.version,
            ),
        ]
        _wait(lambda: _leads(bridge) == MANY)
        figures += _idle(rabbit, bridge, MANY)
        figures += _objects()
        with (
            ServiceBusClient.from_connection_string(bridge.connection_string) as client,
            client.get_queue_sender("orders-0000") as sender,
        ):
            sender.send_messages(ServiceBusMessage("first"))
        bridge.kill()
        begun_s = time.monotonic()
        ready_s = _started_s(bridge)
        with (
            ServiceBusClient.from_connection_string(bridge.connection_string) as client,
            client.get_queue_receiver("orders-0000") as receiver,
        ):
            (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
            received_s = time.monotonic() - begun_s
            receiver.complete_message(message)
    return [
        *figures,
        _bound(f"a bridge with {MANY:,} entities started again: ready", ready_s, RESTART_S),
        _bound("  the first message received", received_s, RECEIVED_S),
    ]


def _most(rabbit: Bench) -> list[Figure]:
    """3,000 entities: neither an exit nor a stall."""
    with _bridge(rabbit, MOST) as bridge:
        ready_s = _started_s(bridge)
        found = LONGEST.search(_metrics(bridge))
        assert found is not None
    return [
        Figure(name=f"{MOST:,} new entities from a file: ready", unit="s", ours=ready_s),
        _bound("  longest stall meanwhile", float(found[1]), STALL_S),
    ]


def _bound(name: str, took_s: float, bound_s: float) -> Figure:
    return Figure(name=name, unit="s", ours=took_s, ratio=took_s, floor=bound_s, is_ceiling=True)


def _topology(count: int) -> Topology:
    queues = tuple(model.Queue(name=f"peer-{number:04}") for number in range(count))
    return compile_namespace(model.Namespace(queues=queues), Capabilities.of("4.3"))


def _objects() -> list[Figure]:
    """Return how many objects of RabbitMQ one more queue is."""
    one, two = _topology(1), _topology(2)
    return [
        Figure(name=f"{kind} an entity", unit="", ours=len(more) - len(fewer))
        for kind, more, fewer in (
            ("exchanges", two.exchanges, one.exchanges),
            ("queues", two.queues, one.queues),
            ("bindings", two.bindings, one.bindings),
        )
    ]


def _peer_s(rabbit: Bench) -> float:
    """Return how long plain pika declares the objects of as many entities, and delete its own."""
    port = rabbit.node.endpoint.hosts[0][1]
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    topology = _topology(PEERS)
    begun_s = time.monotonic()
    declare(channel, topology)
    took_s = time.monotonic() - begun_s
    for queue in topology.queues:
        channel.queue_delete(queue.name)
    for exchange in topology.exchanges:
        channel.exchange_delete(exchange.name)
    connection.close()
    return took_s * MANY / PEERS


if __name__ == "__main__":
    sys.exit(main())
