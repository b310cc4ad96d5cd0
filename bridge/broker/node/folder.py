"""The folder of a private RabbitMQ: its data, log, Erlang cookie and configuration."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bridge.broker.errors import NodeFailed
from bridge.broker.node.ports import lasting_ports
from bridge.broker.node.processes import ERL_AFLAGS, PROC_SELF, ending_without_parent

PLUGINS = ("rabbitmq_management",)

CONFIGURATION: dict[str, str] = {
    # RabbitMQ's default is 16 MiB, less than the premium tier's messages.
    "max_message_size": "134217728",
    "disk_free_limit.absolute": "200MB",
    "log.console": "false",
    "log.file.level": "info",
    "log.file.rotation.size": "10485760",
    "log.file.rotation.count": "3",
}
"""RabbitMQ's settings on a private node, but for ports and folders."""

ERLANG_ARGUMENTS = ("-kernel", "inet_dist_use_interface", "{127,0,0,1}", "+hmbs", "200000")
"""The distribution listens on loopback only. An Erlang process collects its garbage after 1.6 MB of
bodies instead of 0.4 (docs/rabbitmq-faults.md: garbage). With the default a channel that moves
messages of 1 KiB spends a quarter of its time on that (300 queues and 100 connections under load
need no more memory)."""

_STARTING = re.compile(r"Starting RabbitMQ (\d+\.\d+\S*) on Erlang")
_LOG_LINES = 20
_LOG_LINES_READ = 400
_LOG_LINE_MAX = 300


UPGRADES_FROM = (4, 3)
"""The oldest version whose data a newer node may take over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """The ports of one start, all on loopback."""

    amqp: int
    management: int
    distribution: int
    epmd: int


class NodeFolder:
    """The files of a node, which outlast its process; one bridge process uses them at a time.

    Attributes:
        console: the file for the node's standard output and error.
        has_management: whether the node serves the management API.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        configuration: Mapping[str, str],
        plugins: Sequence[str],
        cookie: str | None,
        erlang_arguments: Sequence[str] = (),
    ) -> None:
        """Describe the folder; see `Node`. `name` is the node's whole name, with its host."""
        self.console = path / "log" / "console"
        self.has_management = any(each.startswith("rabbitmq_management") for each in plugins)
        self._path = path
        self._name = name
        self._configuration = configuration
        self._plugins = tuple(plugins)
        self._arguments = (*ERLANG_ARGUMENTS, *erlang_arguments)
        self._wanted_cookie = cookie
        self._cookie_file = path / "home" / ".erlang.cookie"
        self._lock: IO[str] | None = None

    def take(self) -> None:
        """Create the folder if it is missing, and lock it against other processes until `release`.

        Raises:
            NodeFailed: another process has locked the folder, or it cannot be made or written.
        """
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in ("data", "log", "home"):
                (self._path / part).mkdir(parents=True, exist_ok=True)
            if self._lock is not None:
                return
            lock = (self._path / "lock").open("w")
        except OSError as error:
            text = f"the folder {self._path} for a private RabbitMQ cannot be used: "
            raise NodeFailed(text=text + str(error.strerror)) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            text = f"another process runs a RabbitMQ in {self._path}"
            raise NodeFailed(text=text) from error
        self._lock = lock

    def claim(self, version: str) -> None:
        """Note the version of the node that is about to write into the folder.

        Raises:
            NodeFailed: a version older than this one and than 4.3 has written what is there; it is
                left as it is, because 4.3 keeps its definitions elsewhere.
        """
        if not version:
            return
        note = self._path / "version"
        if any((self._path / "data").iterdir()):
            written = note.read_text().strip() if note.exists() else self._logged_version()
            if _release(written) < min(_release(version), UPGRADES_FROM):
                raise NodeFailed(
                    text=f"the data in {self._path} is that of RabbitMQ {written}, and this one is "
                    f"{version}. It is left as it is: give another --data-dir, or move the folder "
                    f"away; to keep its messages start RabbitMQ {written} on it and drain it"
                )
        note.write_text(f"{version}\n")

    def _logged_version(self) -> str:
        """Return the version that started here last, by its log; "3" if the log does not say."""
        versions = [
            each[1]
            for log in sorted((self._path / "log").glob("*.log"))
            for each in _STARTING.finditer(log.read_text(errors="replace"))
        ]
        return versions[-1] if versions else "3"

    @property
    def ports_file(self) -> Path:
        """The file of the ports that the node has at each start."""
        return self._path / "ports.json"

    def kept_ports(self) -> tuple[int, int]:
        """Return the ports of AMQP and of management, chosen at the first start and then kept."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self.ports_file.read_text())
            return int(kept["amqp"]), int(kept["management"])
        amqp, management = lasting_ports(2)
        self.ports_file.write_text(json.dumps({"amqp": amqp, "management": management}) + "\n")
        return amqp, management

    def release(self) -> None:
        """Unlock the folder for other processes."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, ports: NodePorts) -> None:
        """Write configuration, list of plugins and cookie."""
        lines = {"listeners.tcp.1": f"127.0.0.1:{ports.amqp}"}
        if self.has_management:
            lines["management.tcp.ip"] = "127.0.0.1"
            lines["management.tcp.port"] = str(ports.management)
        text = "".join(
            f"{key} = {value}\n" for key, value in {**lines, **self._configuration}.items()
        )
        (self._path / "rabbitmq.conf").write_text(text)
        (self._path / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")
        self._write_cookie()

    def _write_cookie(self) -> None:
        """Write the Erlang cookie with mode 0400: Erlang refuses a file with another mode."""
        path = self._cookie_file
        if path.exists() and self._wanted_cookie in (None, path.read_text()):
            return
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(self._wanted_cookie or secrets.token_hex(16).upper())
        path.chmod(0o400)

    def environment(self, ports: NodePorts, *, path: str, has_epmd: bool) -> dict[str, str]:
        """Return the environment variables of the node and of epmd.

        Args:
            ports: the ports that `write` was given.
            path: PATH, with the node's Erlang on it.
            has_epmd: the node has an epmd of this process, and may not start one that nobody ends.
        """
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RABBITMQ_", "ERL_"))}
        arguments = self._arguments
        if PROC_SELF.exists():
            arguments += "-eval", ending_without_parent()
            if has_epmd:
                kept[ERL_AFLAGS] = "-start_epmd false"
        return kept | {
            "PATH": path,
            "HOME": str(self._path / "home"),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_PORT": str(ports.epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # With this the script becomes the node's process instead of staying its parent:
            # signals, and the end of the bridge, reach the node itself.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": self._name,
            "RABBITMQ_NODE_PORT": str(ports.amqp),
            "RABBITMQ_DIST_PORT": str(ports.distribution),
            "RABBITMQ_MNESIA_BASE": str(self._path / "data"),
            "RABBITMQ_LOG_BASE": str(self._path / "log"),
            "RABBITMQ_CONFIG_FILE": str(self._path / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._path / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(arguments),
        }

    def last_words(self) -> str:
        """Return the lines of the node's console and log that tell the cause of a failure."""
        lines: list[str] = []
        for path in (self.console, self._path / "log" / f"{self._name}.log"):
            with contextlib.suppress(OSError):
                lines += path.read_text(errors="replace").splitlines()[-_LOG_LINES_READ:]
        # The cause comes first; reports of the processes that ended by it follow.
        told = [line for line in lines if "[error]" in line and not line.endswith("> ")] or lines
        told = list(dict.fromkeys(line[:_LOG_LINE_MAX] for line in told))[:_LOG_LINES]
        return "\n".join(told)


def _release(version: str) -> tuple[int, ...]:
    """Return major and minor number."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
