"""A bridge as a separate process for tests: start, kill, restart, stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from bridge.broker.node.ports import Ports
from bridge.testing.http_answers import http_answer

READY_S = 120.0
"""Maximum time between two printed lines; a private RabbitMQ takes up to 13 s of that."""


class Bridge:
    """A bridge process, which keeps its ports when killed and restarted.

    Args:
        command: `sidecar` for a bridge without a gateway: then `port` and `connection_string` are
            meaningless.
        program: the module that is run.

    Attributes:
        port: the port of AMQP 1.0.
        admin_url: the URL of the admin port (HTTP).
        amqp_url: RabbitMQ's virtual host, for the library and for native clients; with a private
            RabbitMQ it is known once started.
        ca: the CA certificate for clients, if the bridge has a certificate of its own.
        lines: all lines printed to standard output and error.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        *,
        amqp_url: str = "",
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
        admin_port: int | None = None,
        command: str = "serve",
        program: str = "bridge.cli.command",
    ) -> None:
        self._ports = Ports(2)  # held as long as this object lives
        ports = self._ports.numbers
        self.port = port or ports[0]
        self.admin_url = f"http://127.0.0.1:{admin_port or ports[1]}"
        self.amqp_url = amqp_url
        self.connection_string = ""
        self.ca: Path | None = None
        self.lines: list[str] = []
        self._command = command
        self._program = program
        if command == "serve":
            arguments = "--port", str(self.port), *arguments
        self._arguments = "--admin-port", str(admin_port or ports[1]), *arguments
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self, **environment: str) -> None:
        """Start the process; return after its `ready` line."""
        printed: Queue[str | None] = Queue()
        self._process = self._begin(
            [sys.executable, "-m", self._program, self._command, *self._arguments],
            env={**os.environ, "BUSBRIDGE_DRAIN": "0", **self._environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process, printed))
        self._reader.start()
        try:
            while (line := printed.get(timeout=READY_S)) is not None:
                if line.startswith("ready"):
                    found = re.search(r"Endpoint=\S+", line)
                    assert found is not None or self._command != "serve", line
                    self.connection_string = found.group() if found is not None else ""
                    own = re.search(r" ca=(\S+)", line)
                    place = re.search(r" rabbitmq=(\S+)", line)
                    self.amqp_url = self.amqp_url or (place[1] if place else "")
                    self.ca = Path(own[1]) if own is not None else None
                    return
        except Empty:
            self.kill()
        self.kill()
        raise AssertionError("the bridge did not get ready:\n" + "\n".join(self.lines[-40:]))

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None, "the bridge was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End the process at once."""
        self._end(signal.SIGKILL, within_s=120)

    def stop(self, *, within_s: float = 120) -> int:
        """End the process as an operator does; return its exit code.

        Raises:
            AssertionError: its stop did not end by itself.
        """
        code = self._end(signal.SIGTERM, within_s=within_s)
        overdue = [line for line in self.lines if "serve.stop_overdue" in line]
        assert not overdue, "\n".join(overdue)
        return code

    def restart(self) -> None:
        """Kill the process if it runs, and restart."""
        self.kill()
        self.start()

    def wait(self, *, within_s: float) -> int:
        """Wait for an end with another cause; return the exit code."""
        assert self._process is not None, "the bridge was not started"
        code = self._process.wait(within_s)
        assert self._reader is not None
        self._reader.join(within_s)
        return code

    def get(self, path: str) -> str:
        """Send a GET to the admin port; return the body of a 200."""
        return http_answer(self.admin_url + path).decode()

    def _begin(self, line: list[str], **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(line, **options)

    def _end(self, number: signal.Signals, *, within_s: float) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self.wait(within_s=within_s)

    def _read(self, process: subprocess.Popen[str], printed: Queue[str | None]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip("\n"))
                printed.put(self.lines[-1])
        printed.put(None)
