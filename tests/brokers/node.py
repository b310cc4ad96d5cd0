"""A RabbitMQ node for blocking tests: `bridge.broker.node.private` behind a loop of its own.

Its ports stay the same over a kill and a new start, so that what is connected to it can come back.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bridge.broker.node import private
from bridge.broker.node.installation import Installation
from bridge.broker.node.ports import Ports
from tests.brokers import clustering

CREDENTIALS = "guest:guest"

_DEADLINE_S = 180.0

Result = TypeVar("Result")


class Node:
    """One node; `start`, `kill` and `start` again as a test likes; at last `close`."""

    def __init__(self, installation: Installation, folder: Path, **options: Any) -> None:
        """Describe a node; `options` are those of `bridge.broker.node.private.Node`."""
        self.folder = folder
        self._ports = Ports(2)
        self.port, self.management_port = self._ports.numbers
        self.url = f"amqp://{CREDENTIALS}@127.0.0.1:{self.port}"
        self.management_url = f"http://{CREDENTIALS}@127.0.0.1:{self.management_port}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._node = private.Node(
            folder,
            installation,
            port=self.port,
            management_port=self.management_port,
            **options,
        )

    @property
    def name(self) -> str:
        """RabbitMQ's name of it."""
        return self._node.name

    @property
    def is_running(self) -> bool:
        """Whether the node's process is there."""
        return self._node.is_running

    @property
    def membership(self) -> dict[str, Any]:
        """Options for nodes that shall join this one, which was started."""
        return clustering.membership(self._node)

    def join(self, other: Node) -> None:
        """Make it a member of another node's cluster; what it held is dropped."""
        self._run(clustering.join(self._node, other._node))

    def start(self) -> None:
        """Start the node; return when it answers over AMQP and HTTP."""
        self._run(self._node.start())

    def signal(self, number: int) -> None:
        """Send a signal to the node (SIGSTOP leaves it deaf, SIGCONT wakes it).

        When SIGSTOP returns it is deaf: on a busy machine its other threads go on working until
        the one that is to take the signal gets its turn.
        """
        self._node.signal(number)
        if number == signal.SIGSTOP:
            end = time.monotonic() + _DEADLINE_S
            while not self._stands_still():
                assert time.monotonic() < end, "the node does not stop"
                time.sleep(0.005)

    def _stands_still(self) -> bool:
        assert self._node._process is not None
        threads = Path(f"/proc/{self._node._process.pid}/task").glob("*/stat")
        try:
            return all(each.read_text().rpartition(")")[2].split()[0] == "T" for each in threads)
        except (FileNotFoundError, ProcessLookupError):
            return False  # a thread has just ended

    def kill(self) -> None:
        """End the node at once, as a power failure would."""
        self._run(self._node.kill())

    def close(self) -> None:
        """End the node and all that belongs to it."""
        self._run(self._node.stop(timeout_s=0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._ports.release()

    def rabbitmqctl(self, *arguments: str) -> str:
        """Run `rabbitmqctl` against the node; return what it prints."""
        return self._run(clustering.ctl(self._node, *arguments))

    def write_rabbitmqctl(self, folder: Path) -> Path:
        """Write a `rabbitmqctl` for PATH that speaks to this node; return it."""
        environment = self._node._environment
        lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        program = self._node._installation.scripts / "rabbitmqctl"
        shim = folder / "rabbitmqctl"
        shim.write_text("\n".join(["#!/bin/bash", *lines, f'exec {program} "$@"', ""]))
        shim.chmod(0o755)
        return shim

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_DEADLINE_S)
