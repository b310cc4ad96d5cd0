"""A RabbitMQ node of the tests' own, from an installed package or an unpacked tree.

It listens on free loopback ports, and may be killed and started again over the same data. epmd,
which a node starts and never stops, is started here as a child instead: nothing stays behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

START_S = 90
CREDENTIALS = "guest:guest"

DEBIAN_SBIN = Path("/usr/lib/rabbitmq/bin")

DEBIAN_HOMES = tuple(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))

CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{port}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management_port}
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.relative = 0.6
# 24 h: a lock that is renewed all day is not RabbitMQ's to end.
consumer_timeout = 86400000
"""


def free_ports(count: int) -> list[int]:
    """Find TCP ports on loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Installation:
    """Where the programs of one RabbitMQ are."""

    def __init__(self, sbin: Path, erlang: Path | None) -> None:
        self.sbin = sbin
        self.path = f"{erlang}:{os.environ['PATH']}" if erlang else os.environ["PATH"]

    @classmethod
    def of_tree(cls, tree: Path) -> Installation:
        """The installation in a tree of `unpack.py`."""
        root = tree / "root"
        for sbin in root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"):
            return cls(sbin, root / "usr/lib/erlang/bin")
        raise FileNotFoundError(f"no RabbitMQ below {root}: run tests/brokers/unpack.py")

    @classmethod
    def of_machine(cls) -> Installation | None:
        """The installation of this machine, if it has one.

        Debian's command on PATH is a wrapper that refuses all users but root and rabbitmq; the
        script behind it does not.
        """
        if (DEBIAN_SBIN / "rabbitmq-server").exists():
            return cls(DEBIAN_SBIN, None)
        found = shutil.which("rabbitmq-server")
        return cls(Path(found).resolve().parent, None) if found else None

    @property
    def version(self) -> str:
        """RabbitMQ's version, as the name of its application's file says it."""
        for folder in (self.sbin.parent, self.sbin.resolve().parent, *DEBIAN_HOMES):
            for found in folder.glob("plugins/rabbit-[0-9]*"):
                return found.name.removeprefix("rabbit-").removesuffix(".ez")
        return "of unknown version"

    def program(self, name: str) -> str:
        """Return the path of one of Erlang's programs."""
        found = shutil.which(name, path=self.path)
        for epmd in sorted(Path("/usr/lib/erlang").glob(f"erts-*/bin/{name}")):
            found = found or str(epmd)
        if found is None:
            raise FileNotFoundError(f"{name} is not beside RabbitMQ's Erlang")
        return found


class Node:
    """One node; `start`, `kill` and `start` again as a test likes."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        self.folder = folder
        self.port, self.management_port, distribution_port, self._epmd_port = free_ports(4)
        self.url = f"amqp://{CREDENTIALS}@127.0.0.1:{self.port}"
        self.management_url = f"http://{CREDENTIALS}@127.0.0.1:{self.management_port}"
        self._installation = installation
        self._process: subprocess.Popen[bytes] | None = None
        for part in ("data", "log", "home"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "rabbitmq.conf").write_text(
            CONFIGURATION.format(port=self.port, management_port=self.management_port)
        )
        (folder / "enabled_plugins").write_text("[rabbitmq_management].\n")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RABBITMQ_")}
        self.environment = {
            **inherited,
            "PATH": installation.path,
            "HOME": str(folder / "home"),
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"tests{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        self._epmd: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the node; return when it answers over AMQP and HTTP."""
        if self._epmd is None:
            self._epmd = subprocess.Popen(
                [self._installation.program("epmd"), "-port", str(self._epmd_port)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
            )
        with (self.folder / "log" / "console").open("ab") as console:
            self._process = subprocess.Popen(
                [self._installation.sbin / "rabbitmq-server"],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        for _ in _tries(START_S):
            if self._process.poll() is not None:
                break
            if self._answers():
                return
        self.kill()
        raise AssertionError(f"RabbitMQ did not start:\n{self._last_words()}")

    @property
    def is_running(self) -> bool:
        """Whether the node's process is there."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the node (SIGSTOP leaves it deaf, SIGCONT wakes it)."""
        assert self._process is not None, "the node was not started"
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End the node at once, as a power failure would."""
        if self._process is not None and self.is_running:
            self.signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """End the node and its epmd."""
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None

    def rabbitmqctl(self, *arguments: str) -> str:
        """Run `rabbitmqctl` against the node; return what it prints."""
        return subprocess.run(
            [self._installation.sbin / "rabbitmqctl", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass
            address = f"http://127.0.0.1:{self.management_port}/"
            with urllib.request.urlopen(address, timeout=2):
                return True
        except OSError:
            return False

    def _last_words(self) -> str:
        lines = (self.folder / "log" / "console").read_text(errors="replace").splitlines()
        return "\n".join(lines[-30:])


def _tries(within_s: float) -> Iterator[None]:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        yield
        time.sleep(0.1)
