"""A private RabbitMQ: a child process of this one, on loopback only, with its data in a folder.

The ports of AMQP and management are chosen once and kept in the folder, unless they are given;
those of the distribution and of epmd are free ones, new at each start. A node starts epmd by itself
and never stops it, so the bridge starts epmd as a second child. Node and epmd end with the bridge,
however the bridge ends (on Linux the kernel ends them, and a node that has started looks for its
bridge once: Erlang does not heed the kernel's signal while it boots).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import ConnectionLost, ManagementRefused, NodeFailed, TooOld
from bridge.broker.management.api import Management
from bridge.broker.node.folder import CONFIGURATION, PLUGINS, NodeFolder, NodePorts
from bridge.broker.node.installation import Installation
from bridge.broker.node.port_holder import holder_of
from bridge.broker.node.ports import Ports, PortTaken
from bridge.broker.node.processes import die_with_parent, end_leftovers

START_TIMEOUT_S = 120.0
"""A start takes up to 13 s on an idle machine; a recovery of much data takes longer."""

STOP_TIMEOUT_S = 20.0

_POLL_S = 0.1


class Node:
    """A private node; it may be stopped or killed and started again with the same data.

    Attributes:
        folder: the folder of the node's data, log and configuration.
        name: the node's whole name, with its host.
        endpoint: the AMQP address, once started.
        management_url: the URL of the management API, once started; "" without the plugin.
        has_ended: set when the node's process is gone, for whatever reason.
        epmd_port: the port of the node's epmd, once started.
    """

    def __init__(
        self,
        folder: Path,
        installation: Installation,
        *,
        name: str = "busbridge",
        configuration: Mapping[str, str] | None = None,
        plugins: Sequence[str] = PLUGINS,
        port: int = 0,
        management_port: int = 0,
        epmd_port: int = 0,
        cookie: str | None = None,
        erlang_arguments: Sequence[str] = (),
    ) -> None:
        """Describe a node.

        Args:
            folder: the node's folder; `start` creates it if it is missing.
            installation: the RabbitMQ to run.
            name: the node's name before `@localhost`; a node finds its data by its name.
            configuration: lines of rabbitmq.conf that add to `CONFIGURATION` or replace lines of
                it.
            plugins: the enabled plugins.
            port: AMQP port, 0 for the folder's own.
            management_port: HTTP port, 0 for the folder's own.
            epmd_port: port of an epmd that another node of this process has started.
            cookie: Erlang cookie; the nodes of a cluster share one. None keeps the folder's.
            erlang_arguments: flags of `erl` behind `ERLANG_ARGUMENTS`.
        """
        self.folder = folder.absolute()
        self.name = f"{name}@localhost"
        self.endpoint = Endpoint(hosts=(("127.0.0.1", port),))
        self.management_url = ""
        self.has_ended = asyncio.Event()
        self.epmd_port = epmd_port
        self._shares_epmd = epmd_port != 0
        self._installation = installation
        self._files = NodeFolder(
            self.folder,
            self.name,
            configuration=CONFIGURATION | dict(configuration or {}),
            plugins=plugins,
            cookie=cookie,
            erlang_arguments=erlang_arguments,
        )
        self._port = port
        self._management_port = management_port
        self._process: asyncio.subprocess.Process | None = None
        self._epmd: asyncio.subprocess.Process | None = None
        self._waiter: asyncio.Task[None] | None = None
        self._environment: dict[str, str] = {}

    def __repr__(self) -> str:
        state = f"pid {self._process.pid}" if self.is_running and self._process else "not running"
        return f"<Node {self.name} [{state}, {self.endpoint}]>"

    @property
    def is_running(self) -> bool:
        """Whether the node's process is running."""
        return self._process is not None and self._process.returncode is None

    @property
    def end(self) -> str:
        """How the node's process has ended, in words."""
        code = None if self._process is None else self._process.returncode
        if code is None:
            return "it was stopped"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the node and return when it answers over AMQP and HTTP.

        Raises:
            NodeFailed: the node does not start, or not in time; the text has lines of its log, or
                says who has its port.
        """
        assert not self.is_running, "the node is running"
        self._files.take()
        try:
            self._files.claim(self._installation.version_text)
            # A cluster's other nodes use this epmd, too: it survives a kill of its node.
            spared = () if self._epmd is None else (self._epmd.pid,)
            await end_leftovers(self.folder, spared=spared)
            # Reserved, since the node listens on the ports only seconds later.
            with Ports(4, asked_for=self._lasting_ports()) as ports:
                self._write_files(*ports.numbers)
                await self._start_epmd()
                await self._start_server()
                async with asyncio.timeout(timeout_s):
                    await self._until_it_answers()
        except TimeoutError:
            await self._clear()
            raise NodeFailed(text=self._failure(f"did not answer in {timeout_s:g} s")) from None
        except PortTaken as error:
            await self._clear()
            raise NodeFailed(text=self._taken(error.port)) from error
        except OSError as error:
            await self._clear()
            raise NodeFailed(text=f"RabbitMQ cannot be started: {error}") from error
        except BaseException:
            await self._clear()
            raise

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the node in order, and kill it when it has not ended after `timeout_s`.

        A kill may undo RabbitMQ's latest declarations (`broker/declaration_fence.py`).
        """
        if self._process is not None and self.is_running:
            self._process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self.has_ended.wait()
        await self._clear()

    async def kill(self) -> None:
        """Kill the node's processes at once (SIGKILL); `start` may follow."""
        self.signal(signal.SIGKILL)
        if self._waiter is not None:
            await self._waiter
            self._waiter = None
        self._process = None

    def signal(self, number: int) -> None:
        """Send a signal to all the node's processes (SIGSTOP suspends it, SIGCONT resumes it)."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _lasting_ports(self) -> tuple[int, int]:
        if self._port and self._management_port:
            return self._port, self._management_port
        amqp, management = self._files.kept_ports()
        return self._port or amqp, self._management_port or management

    def _taken(self, port: int) -> str:
        text = f"port {port} of the private RabbitMQ in {self.folder} is taken by {holder_of(port)}"
        if port in (self._port, self._management_port):
            return text
        return f"{text}. End that, or remove {self._files.ports_file} to have other ports chosen"

    def _write_files(self, amqp: int, management: int, distribution: int, epmd: int) -> None:
        has_epmd = self._epmd is not None or self._shares_epmd
        ports = NodePorts(
            amqp=amqp,
            management=management,
            distribution=distribution,
            epmd=self.epmd_port if has_epmd else epmd,
        )
        self._files.write(ports)
        self.epmd_port = ports.epmd
        self.endpoint = Endpoint(hosts=(("127.0.0.1", ports.amqp),))
        has_api = self._files.has_management
        self.management_url = f"http://127.0.0.1:{ports.management}" if has_api else ""
        self._environment = self._files.environment(
            ports,
            path=self._installation.path,
            has_epmd=self._shares_epmd or self._installation.epmd() is not None,
        )

    async def _start_epmd(self) -> None:
        if self._shares_epmd or (self._epmd is not None and self._epmd.returncode is None):
            return
        program = self._installation.epmd()
        if program is None:
            return
        self._epmd = await asyncio.create_subprocess_exec(
            program,
            "-port",
            str(self.epmd_port),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )

    async def _start_server(self) -> None:
        with self._files.console.open("wb") as console:
            self._process = await asyncio.create_subprocess_exec(
                self._installation.scripts / "rabbitmq-server",
                env=self._environment,
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        self.has_ended = asyncio.Event()
        self._waiter = asyncio.create_task(self._watch(self._process, self.has_ended))

    @staticmethod
    async def _watch(process: asyncio.subprocess.Process, has_ended: asyncio.Event) -> None:
        await process.wait()
        has_ended.set()

    async def _until_it_answers(self) -> None:
        while True:
            if self.has_ended.is_set():
                raise NodeFailed(text=self._failure("ended while it started"))
            try:
                connection = await Connection.open(
                    self.endpoint, name="is it up?", heartbeat_s=0, open_timeout_s=5
                )
                await connection.close()
                if self.management_url:
                    async with Management(self.endpoint, self.management_url) as management:
                        await management.overview()
            except TooOld:  # an installation whose folders do not tell its version
                raise
            except (ConnectionLost, ManagementRefused):
                await asyncio.sleep(_POLL_S)
            else:
                return

    def _failure(self, what: str) -> str:
        return f"the private RabbitMQ in {self.folder} {what}:\n{self._files.last_words()}"

    async def _clear(self) -> None:
        """Kill the node's processes and its epmd, and release the folder."""
        await self.kill()
        if self._epmd is not None:
            with contextlib.suppress(ProcessLookupError):
                self._epmd.kill()
            await self._epmd.wait()
            self._epmd = None
        self._files.release()
