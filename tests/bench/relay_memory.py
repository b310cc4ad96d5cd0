"""Memory of a relay over a million messages of 1 KiB, which are sent and received meanwhile.

`busbridge relay` is a process of its own; its resident memory is taken at each tenth of the
messages, and may not grow after the first two of them. All messages are accounted for: each comes
once. The bridge's memory is printed beside: it remembers what it took of a source for the relay's
lag, which is short here.

    python -m tests.bench.relay_memory [--messages COUNT] [--rabbitmq TREE]...
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bridge.broker.node.private import Node
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from tests.bench.figure import Figure
from tests.bench.rabbit import options_of, report_each
from tests.bench.relay_client import namespace_of
from tests.bench.resident_memory import memory_mb
from tests.bench.sdk_client import BATCH, BODY
from tests.bench.server import BridgeServer, bridge_server
from tests.fixtures.relay_process import RelayProcess

MESSAGES = 1_000_000
TENTHS = 10
WARM = 2
"""Tenths after which nothing may grow."""

GROWTH_MB_MAX = 8.0
AHEAD_MAX = 20_000
"""Messages that are sent and have not come yet."""

STALLED_S = 120.0

FILE = """
[sides.one]
env = "ONE"
id = "one"

[sides.other]
env = "OTHER"
id = "other"

[[routes]]
name = "bench"
from = "one/from"
to = "other/to"
"""


class Flow:
    """Messages that are sent to one queue, and received from another.

    Attributes:
        relay_mb, bridge_mb: resident memory at each tenth of the messages that have come.
        came: whether each message has come, by its number.
    """

    def __init__(self, count: int, relay: RelayProcess, bridge: BridgeServer) -> None:
        self.count = count
        self.relay_mb: list[float] = []
        self.bridge_mb: list[float] = []
        self.came = bytearray(count)
        self._found = 0
        self._sent = 0
        self._relay = relay
        self._bridge = bridge
        self._has_come = asyncio.Event()

    async def send(self, namespace: RemoteNamespace) -> None:
        """Send all, no more ahead than may be."""
        sender = await namespace.sender("from")
        for start in range(0, self.count, BATCH):
            while start - self._found > AHEAD_MAX:
                self._has_come.clear()
                async with asyncio.timeout(STALLED_S):
                    await self._has_come.wait()
            numbers = range(start, min(start + BATCH, self.count))
            await sender.send(
                [RemoteMessage.of(data=b"%08d" % each + BODY[8:]) for each in numbers]
            )

    async def receive(self, namespace: RemoteNamespace) -> None:
        """Receive all, and look at the memory on the way."""
        receiver = await namespace.receiver("to", "receive-and-delete")
        while self._found < self.count:
            found = await receiver.receive(2_000, STALLED_S)
            assert found, f"nothing comes behind {self._found} messages"
            for each in found:
                number = int(each.message.data[:8])
                assert not self.came[number], f"message {number} came twice"
                self.came[number] = 1
            self._found += len(found)
            self._has_come.set()
            if self._found * TENTHS >= self.count * (len(self.relay_mb) + 1):
                self.relay_mb.append(memory_mb(self._relay.process_id))
                self.bridge_mb.append(memory_mb(self._bridge.process_id))
                print(
                    f"relay_memory: {self._found:>9,} messages, relay {self.relay_mb[-1]:.1f} MB, "
                    f"bridge {self.bridge_mb[-1]:.1f} MB",
                    file=sys.stderr,
                )


async def flow(bridge: BridgeServer, count: int) -> tuple[Flow, float]:
    """Run a relay and all messages through it; return what was seen, and messages a second."""
    with tempfile.TemporaryDirectory(prefix="busbridge-bench-") as folder:
        file = Path(folder) / "relay.toml"
        file.write_text(FILE)
        connection = bridge.connection_string
        relay = RelayProcess(file, {"ONE": connection, "OTHER": connection}, "--lag", "5")
        relay.start()
        try:
            async with namespace_of(connection) as near, namespace_of(connection) as far:
                seen = Flow(count, relay, bridge)
                begin = time.perf_counter()
                async with asyncio.TaskGroup() as work:
                    work.create_task(seen.send(near))
                    work.create_task(seen.receive(far))
                rate = count / (time.perf_counter() - begin)
                management = await near.management("from")
                assert not await management.peek(1, 1), "a message is left at the source"
            assert await asyncio.to_thread(relay.stop) == 0, relay.log.read_text()[-2000:]
        finally:
            with suppress(ProcessLookupError):
                relay.kill()
    return seen, rate


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    options, rest = parser.parse_known_args()

    def measure(node: Node) -> list[Figure]:
        with bridge_server(["from", "to"], *options_of(node)) as bridge:
            seen, rate = asyncio.run(flow(bridge, options.messages))
            version = bridge.rabbitmq_version
        growth_mb = max(seen.relay_mb[WARM:]) - max(seen.relay_mb[:WARM])
        return [
            Figure(
                name=f"relay: {options.messages:,} messages, what memory grows by",
                unit="MB",
                ours=growth_mb,
                peer="may be at most",
                peers=GROWTH_MB_MAX,
                ratio=max(growth_mb, 0.0) / GROWTH_MB_MAX,
                floor=1.0,
                is_ceiling=True,
                rabbitmq=version,
                samples={"relay_mb": seen.relay_mb, "bridge_mb": seen.bridge_mb},
            ),
            Figure(
                name="relay: its memory, half of the messages behind it",
                unit="MB",
                ours=statistics.median(seen.relay_mb),
                peer="the bridge's",
                peers=statistics.median(seen.bridge_mb),
                rabbitmq=version,
            ),
            Figure(
                name="relay: sent, relayed, received", unit="msg/s", ours=rate, rabbitmq=version
            ),
        ]

    return report_each("Memory of a relay", measure, rest)


if __name__ == "__main__":
    sys.exit(main())
