"""A RabbitMQ of the bench's own, an entity on it, and a sidecar in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import aiohttp

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.handover import HandOver, Publish
from bridge.broker.node.installation import Installation
from bridge.broker.node.private import Node
from bridge.model.entity import Namespace, Queue, Topic
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.definitions import to_json
from bridge.wire.basic import Properties
from tests.bench.figure import Figure, report
from tests.bench.resident_memory import memory_mb

ROOT = Path(__file__).parents[2]
PLUGINS = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
WINDOW = 2_000
DEADLINE_S = 120.0

BODY = bytes(1024)
PROPERTIES = Properties(delivery_mode=2, message_id="1234", content_type="text/plain").encode()


def installations(arguments: list[str]) -> list[Installation]:
    """Return the RabbitMQs that the command line names, else the machine's own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rabbitmq", action="append", type=Path, help="an unpacked tree, or more")
    trees = parser.parse_args(arguments).rabbitmq or []
    found = [Installation.below(tree) for tree in trees]
    if not found:
        own = Installation.find()
        assert own is not None, "RabbitMQ is not installed here (make setup)"
        found = [own]
    return found


def options_of(node: Node) -> tuple[str, ...]:
    """Return the options by which `busbridge serve` uses a node."""
    host, port = node.endpoint.hosts[0]
    url = f"amqp://guest:guest@{host}:{port}"
    return ("--rabbitmq-url", url, "--management-url", node.management_url)


class Bench:
    """A node, a connection to it, and its management API.

    Attributes:
        connection: the bench's own.
        version: RabbitMQ's.
    """

    def __init__(self, node: Node, connection: Connection) -> None:
        self.node = node
        self.connection = connection
        self.version = str(connection.server_properties["version"])

    async def declare(self, entity: Queue | Topic) -> None:
        """Declare the resources of an entity, and of a topic's subscriptions, without policies."""
        queues, topics = ((entity,), ()) if isinstance(entity, Queue) else ((), (entity,))
        namespace = Namespace(queues=queues, topics=topics)
        topology = compile_namespace(namespace, Capabilities.of(self.version))
        channel = await self.connection.channel()
        for exchange in topology.exchanges:
            await channel.declarations.declare_exchange(exchange)
        for each in topology.queues:
            await channel.declarations.declare_queue(each)
        for binding in topology.bindings:
            await channel.declarations.bind(binding)
        await channel.close()

    def cpu_s(self) -> float:
        """Return the processor time that RabbitMQ has used, with all that it has started."""
        assert self.node._process is not None
        group, ticks = os.getpgid(self.node._process.pid), 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rsplit(")", 1)[1].split()
                ticks += (int(fields[11]) + int(fields[12])) * (int(fields[2]) == group)
        return ticks / os.sysconf("SC_CLK_TCK")

    async def declare_quorum(self, queue: str) -> None:
        """Declare a quorum queue, on a connection of its own: the bench's loop may stand still."""
        async with self._channel() as channel:
            await channel.declarations.declare_queue(queue, arguments={"x-queue-type": "quorum"})

    async def make_virtual_host(self, name: str) -> None:
        """Make a virtual host."""
        await self._http("PUT", f"/api/vhosts/{name}", {})

    async def messages(self, queue: str, virtual_host: str = "/") -> int:
        """Return the number of a queue's ready messages, asked on a connection of its own."""
        async with self._channel(virtual_host) as channel:
            return (await channel.declarations.declare_queue(queue, passive=True)).messages

    @contextlib.asynccontextmanager
    async def _channel(self, virtual_host: str = "/") -> AsyncIterator[Channel]:
        endpoint = replace(self.node.endpoint, vhost=virtual_host)
        connection = await Connection.open(endpoint, name="bench look")
        try:
            yield await connection.channel()
        finally:
            await connection.close()

    async def put_shovel(self, name: str, source: str, target: str) -> None:
        """Have RabbitMQ's own shovel move messages, at least once, with a prefetch of 1,000."""
        port = self.node.endpoint.hosts[0][1]
        uri = f"amqp://guest:guest@127.0.0.1:{port}"
        value = {
            "src-protocol": "amqp091",
            "src-uri": uri,
            "src-queue": source,
            "src-prefetch-count": 1000,
            "dest-protocol": "amqp091",
            "dest-uri": uri,
            "dest-queue": target,
            "ack-mode": "on-confirm",
        }
        await self._http("PUT", f"/api/parameters/shovel/%2f/{name}", {"value": value})

    async def delete_shovel(self, name: str) -> None:
        """Remove a shovel."""
        await self._http("DELETE", f"/api/parameters/shovel/%2f/{name}", None)

    async def _http(self, method: str, path: str, body: object) -> None:
        login = aiohttp.BasicAuth("guest", "guest")
        url = self.node.management_url.rstrip("/") + path
        async with (
            aiohttp.ClientSession(auth=login) as session,
            session.request(method, url, json=body) as answer,
        ):
            assert answer.status < 300, await answer.text()


@contextlib.asynccontextmanager
async def bench(installation: Installation) -> AsyncIterator[Bench]:
    """Run a node for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="busbridge-bench-") as folder:
        node = Node(Path(folder) / "node", installation, plugins=PLUGINS)
        await node.start()
        try:
            connection = await Connection.open(node.endpoint, name="bench")
            yield Bench(node, connection)
            await connection.close()
        finally:
            await node.stop()


def report_each(
    title: str, measure: Callable[[Node], list[Figure]], arguments: Sequence[str] | None = None
) -> int:
    """Measure on each RabbitMQ that the command line names, and print; return the exit code.

    Args:
        measure: works in a thread, beside a loop that does nothing.
        arguments: those of the command line that name them; `None`: all.
    """

    async def measured() -> list[Figure]:
        figures: list[Figure] = []
        for installation in found:
            async with bench(installation) as rabbit:
                figures += await asyncio.to_thread(measure, rabbit.node)
        return figures

    found = installations(list(sys.argv[1:] if arguments is None else arguments))
    return 0 if report(title, asyncio.run(measured())) else 1


def _setting(entity: Queue | Topic) -> dict[str, object]:
    """Return what the sidecar's command line says of an entity."""
    if isinstance(entity, Queue):
        queue = asdict(entity)
        del queue["status"], queue["authorization_rules"]
        return {"queues": [queue]}
    # An argument of a command has 128 KiB at most.
    keys = ("kind", "name", "topic", "rules", "incarnation")
    forms = [to_json(each) for each in (entity, *entity.subscriptions)]
    short = [{key: form[key] for key in keys if key in form} for form in forms]
    return {"queues": [], "definitions": short}


class Sidecar:
    """The sidecar in a process of its own, as tests run it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, node: Node, entity: Queue | Topic) -> Sidecar:
        """Start it and wait until it is ready."""
        port = node.endpoint.hosts[0][1]
        setting = {"url": f"amqp://guest:guest@127.0.0.1:{port}", **_setting(entity)}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.fixtures.sidecar_process",
            json.dumps(setting),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return cls(process)

    def memory_mb(self) -> float:
        """Return its resident memory."""
        return memory_mb(self.process.pid)

    def cpu_s(self) -> float:
        """Return the processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> dict[str, object]:
        """End it gracefully; returns its counters."""
        self.process.terminate()
        output, _ = await self.process.communicate()
        return dict(json.loads(output.splitlines()[-1]))


async def fill(channel: Channel, publishes: list[Publish]) -> float:
    """Publish with a window, confirmed; returns the rate."""
    await channel.publisher.confirm_select()
    handover = HandOver(channel)
    begin = time.perf_counter()
    half = WINDOW // 2
    chunks = (publishes[start : start + half] for start in range(0, len(publishes), half))

    async def work() -> None:
        for chunk in chunks:
            await handover.move(chunk, failpoint="bench.hop")

    await asyncio.gather(work(), work())
    return len(publishes) / (time.perf_counter() - begin)


async def rate_of(connection: Connection, queue: str, count: int, deadline_s: float) -> float:
    """Watch a queue fill up; returns messages a second between its first and last tenth."""
    channel = await connection.channel()
    low, high = count // 10, count - count // 10
    begin: tuple[float, int] | None = None
    end_s = time.perf_counter() + deadline_s
    while time.perf_counter() < end_s:
        state = await channel.declarations.declare_queue(queue, passive=True)
        now = time.perf_counter()
        if begin is None and state.messages >= low:
            begin = now, state.messages
        if begin is not None and state.messages >= high:
            await channel.close()
            return (state.messages - begin[1]) / (now - begin[0])
        await asyncio.sleep(0.01)
    raise TimeoutError(f"{queue} has {state.messages} of {count}")


async def shovel_rate(rabbit: Bench, name: str, count: int) -> float:
    """Messages of 1 KiB a second that RabbitMQ's shovel moves between two quorum queues."""
    channel = await rabbit.connection.channel()
    for queue in (name, f"{name}-target"):
        await channel.declarations.declare_queue(queue, arguments={"x-queue-type": "quorum"})
    await fill(channel, [Publish("", name, PROPERTIES, BODY)] * count)
    await rabbit.put_shovel(name, name, f"{name}-target")
    rate = await rate_of(rabbit.connection, f"{name}-target", count, DEADLINE_S)
    await rabbit.delete_shovel(name)
    for queue in (name, f"{name}-target"):
        await channel.declarations.delete_queue(queue)
    await channel.close()
    return rate


async def shovel_rate_of(node: Node, name: str, count: int) -> float:
    """The same of a node, on a connection of this loop's."""
    connection = await Connection.open(node.endpoint, name="bench shovel")
    try:
        return await shovel_rate(Bench(node, connection), name, count)
    finally:
        await connection.close()
