"""A private RabbitMQ: a child of this process, on loopback only, its data kept in a folder.

Everything of it is in the folder: data, log, Erlang cookie, configuration. Its ports are free ones,
new at each start unless they are given. epmd, which a node starts by itself and never stops, is
started here as a second child. Both end with the bridge, however the bridge ends (on Linux the
kernel sees to it).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from bridge.broker.connection import Connection
from bridge.broker.endpoint import Endpoint
from bridge.broker.errors import ConnectionLost, ManagementRefused, NodeFailed
from bridge.broker.installation import Installation
from bridge.broker.management import Management
from bridge.broker.processes import die_with_parent, end_leftovers, free_ports

START_TIMEOUT_S = 120.0
"""3.10 takes up to 13 s on an idle machine; a recovery of much data takes longer."""

STOP_TIMEOUT_S = 20.0

CTL_TIMEOUT_S = 90.0
"""rabbitmqctl gives up by itself after 60 s, mostly."""

PLUGINS = ("rabbitmq_management",)

CONFIGURATION: dict[str, str] = {
    # 30 days: a lock that is renewed for long is not RabbitMQ's to end. Below 2^32 ms, Erlang's
    # largest timeout.
    "consumer_timeout": "2592000000",
    # 3.10's default; 4.x has 16 MiB, less than the premium tier's messages.
    "max_message_size": "134217728",
    "disk_free_limit.absolute": "200MB",
    "log.console": "false",
    "log.file.level": "info",
    "log.file.rotation.size": "10485760",
    "log.file.rotation.count": "3",
}
"""What differs from RabbitMQ's defaults."""

_POLL_S = 0.1
_LOG_LINES = 20
_LOG_LINES_READ = 400
_LOG_LINE_MAX = 300


class Node:
    """One private node; it may be stopped or killed and started again over the same data.

    Attributes:
        folder: where everything of it is.
        endpoint: where it listens, once started.
        management_url: its management API, once started.
        has_ended: set when the process is gone, for whatever reason.
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
    ) -> None:
        """Describe a node.

        Args:
            folder: made when it is not there.
            installation: which RabbitMQ.
            name: the node's name before `@localhost`; it belongs to the data.
            configuration: more lines of rabbitmq.conf, or others instead of `CONFIGURATION`'s.
            plugins: what is enabled.
            port: AMQP port, 0 for a free one.
            management_port: HTTP port, 0 for a free one.
            epmd_port: port of an epmd that another node of this process has started.
            cookie: Erlang cookie; the nodes of a cluster share one. None keeps the folder's.
        """
        self.folder = folder.absolute()
        self.name = f"{name}@localhost"
        self.endpoint = Endpoint(hosts=(("127.0.0.1", port),))
        self.management_url = ""
        self.has_ended = asyncio.Event()
        self.epmd_port = epmd_port
        self._shares_epmd = epmd_port != 0
        self._installation = installation
        self._configuration = CONFIGURATION | dict(configuration or {})
        self._plugins = tuple(plugins)
        self._port = port
        self._management_port = management_port
        self._cookie = cookie
        self._process: asyncio.subprocess.Process | None = None
        self._epmd: asyncio.subprocess.Process | None = None
        self._waiter: asyncio.Task[None] | None = None
        self._lock: IO[str] | None = None
        self._environment: dict[str, str] = {}

    def __repr__(self) -> str:
        state = f"pid {self._process.pid}" if self.is_running and self._process else "not running"
        return f"<Node {self.name} [{state}, {self.endpoint}]>"

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.returncode is None

    @property
    def cookie(self) -> str:
        """The Erlang cookie, which the nodes of a cluster share."""
        return (self.folder / "home" / ".erlang.cookie").read_text()

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it and return when it answers over AMQP and HTTP.

        Raises:
            NodeFailed: with the last lines of its log.
        """
        assert not self.is_running, "the node is running"
        self._take_folder()
        try:
            await end_leftovers(self.folder)
            self._write_files()
            await self._start_epmd()
            await self._start_server()
            async with asyncio.timeout(timeout_s):
                await self._until_it_answers()
        except TimeoutError:
            await self._clear()
            raise NodeFailed(text=self._failure(f"did not answer in {timeout_s:g} s")) from None
        except OSError as error:
            await self._clear()
            raise NodeFailed(text=f"RabbitMQ cannot be started: {error}") from error
        except BaseException:
            await self._clear()
            raise

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop it in order; kill it when that takes longer; neither loses anything."""
        if self._process is not None and self.is_running:
            self._process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self.has_ended.wait()
        await self._clear()

    async def kill(self) -> None:
        """End it at once, as a power failure would; `start` may follow."""
        await self._kill_server()

    def signal(self, number: int) -> None:
        """Send a signal to all its processes (SIGSTOP leaves it deaf, SIGCONT wakes it)."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def ctl(self, *arguments: str) -> str:
        """Run `rabbitmqctl` against it and return what it prints.

        Raises:
            NodeFailed: with what it printed, when it failed.
        """
        process = await asyncio.create_subprocess_exec(
            self._installation.scripts / "rabbitmqctl",
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(CTL_TIMEOUT_S):
                output = (await process.communicate())[0].decode(errors="replace")
        except TimeoutError:
            process.kill()
            await process.wait()
            text = f"rabbitmqctl {' '.join(arguments)} took more than {CTL_TIMEOUT_S:g} s"
            raise NodeFailed(text=text) from None
        if process.returncode:
            raise NodeFailed(text=f"rabbitmqctl {' '.join(arguments)}: {output.strip()}")
        return output

    async def join(self, other: Node) -> None:
        """Make it a member of another node's cluster; what it held is dropped."""
        await self.ctl("stop_app")
        await self.ctl("join_cluster", other.name)
        await self.ctl("start_app")
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._until_it_answers()
        except TimeoutError:
            text = self._failure(f"did not answer in {START_TIMEOUT_S:g} s after it joined")
            raise NodeFailed(text=text) from None

    def _take_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in ("data", "log", "home"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        if self._lock is not None:
            return
        lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            text = f"another process runs a RabbitMQ in {self.folder}"
            raise NodeFailed(text=text) from error
        self._lock = lock

    def _write_files(self) -> None:
        count = 3 if self._epmd is not None or self._shares_epmd else 4
        amqp, management, distribution, *rest = free_ports(count)
        amqp = self._port or amqp
        management = self._management_port or management
        self.epmd_port = rest[0] if rest else self.epmd_port
        self.endpoint = Endpoint(hosts=(("127.0.0.1", amqp),))
        self.management_url = f"http://127.0.0.1:{management}"
        lines = {
            "listeners.tcp.1": f"127.0.0.1:{amqp}",
            "management.tcp.ip": "127.0.0.1",
            "management.tcp.port": str(management),
        } | self._configuration
        if not any(plugin.startswith("rabbitmq_management") for plugin in self._plugins):
            del lines["management.tcp.ip"], lines["management.tcp.port"]
            self.management_url = ""
        text = "".join(f"{key} = {value}\n" for key, value in lines.items())
        (self.folder / "rabbitmq.conf").write_text(text)
        (self.folder / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")
        self._write_cookie()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RABBITMQ_", "ERL_"))}
        self._environment = kept | {
            "PATH": self._installation.path,
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # Has the script become the node instead of staying as its parent: signals, and the
            # end of the bridge, reach the node itself.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_PORT": str(amqp),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ("-kernel inet_dist_use_interface {127,0,0,1}"),
        }

    def _write_cookie(self) -> None:
        """Write the cookie with mode 0400, without which Erlang refuses it."""
        path = self.folder / "home" / ".erlang.cookie"
        if path.exists() and (self._cookie is None or path.read_text() == self._cookie):
            return
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(self._cookie or secrets.token_hex(16).upper())
        path.chmod(0o400)

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
            preexec_fn=die_with_parent,
        )

    async def _start_server(self) -> None:
        with (self.folder / "log" / "console").open("wb") as console:
            self._process = await asyncio.create_subprocess_exec(
                self._installation.scripts / "rabbitmq-server",
                env=self._environment,
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                preexec_fn=die_with_parent,
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
            except (ConnectionLost, ManagementRefused):
                await asyncio.sleep(_POLL_S)
            else:
                return

    def _failure(self, what: str) -> str:
        lines: list[str] = []
        for path in (self.folder / "log" / "console", self.folder / "log" / f"{self.name}.log"):
            with contextlib.suppress(OSError):
                lines += path.read_text(errors="replace").splitlines()[-_LOG_LINES_READ:]
        # The cause is told first; a report of every process that it ended follows.
        told = [line for line in lines if "[error]" in line and not line.endswith("> ")] or lines
        told = list(dict.fromkeys(line[:_LOG_LINE_MAX] for line in told))[:_LOG_LINES]
        return f"the private RabbitMQ in {self.folder} {what}:\n" + "\n".join(told)

    async def _kill_server(self) -> None:
        self.signal(signal.SIGKILL)
        if self._waiter is not None:
            await self._waiter
            self._waiter = None
        self._process = None

    async def _clear(self) -> None:
        """End what is left of it, epmd included, and give the folder up."""
        await self._kill_server()
        if self._epmd is not None:
            with contextlib.suppress(ProcessLookupError):
                self._epmd.kill()
            await self._epmd.wait()
            self._epmd = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
