"""Servers to measure: the bridge as `busbridge serve`, and the in-memory one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 60.0
STOP_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeServer:
    """A running bridge.

    Attributes:
        connection_string: for an SDK.
        admin_url: where health and metrics are.
        amqp_url: its RabbitMQ.
        process_id: its process.
    """

    connection_string: str
    admin_url: str
    amqp_url: str
    rabbitmq_version: str
    process_id: int


def connection_string(port: str) -> str:
    """Return what an SDK connects with to a server on this port."""
    return (
        f"Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )


def emulator_config(queues: list[str], *, requires_session: bool = False) -> str:
    """A Config.json with these queues, long locks and many deliveries."""
    properties: dict[str, object] = {"LockDuration": "PT5M", "MaxDeliveryCount": 2000}
    if requires_session:
        properties["RequiresSession"] = True
    entities = [{"Name": name, "Properties": properties} for name in queues]
    namespace = {"Name": "sbemulatorns", "Queues": entities, "Topics": []}
    return json.dumps({"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}})


@contextmanager
def bridge_server(
    queues: list[str],
    *arguments: str,
    requires_session: bool = False,
    tree: Path | None = None,
) -> Iterator[BridgeServer]:
    """Run `busbridge serve` on a RabbitMQ of its own until the end of the block.

    Args:
        tree: the checkout of the bridge; by default this one.
    """
    with tempfile.TemporaryDirectory(prefix="busbridge-bench-") as folder:
        config = Path(folder) / "Config.json"
        config.write_text(emulator_config(queues, requires_session=requires_session))
        command = [
            *(sys.executable, "-m", "bridge.cli.main", "serve"),
            *("--port", "0", "--admin-port", "0", "--config", str(config)),
            *("--data-dir", str(Path(folder) / "data"), "--log-level", "warning", *arguments),
        ]
        with _running(command, tree) as (process, line):
            connection = re.search(r"Endpoint=\S+", line)
            assert connection, line
            facts = dict(re.findall(r"(\w+)=(\S+)", line.split("Endpoint=")[0]))
            yield BridgeServer(
                connection_string=connection[0],
                admin_url=facts.get("admin", ""),
                amqp_url=facts.get("rabbitmq", ""),
                rabbitmq_version=facts.get("version", "?"),
                process_id=process.pid,
            )


@contextmanager
def memory_server(queues: list[str], *arguments: str) -> Iterator[str]:
    """Run the in-memory server until the end of the block; gives its connection string."""
    command = [sys.executable, "-m", "tests.bench.memory_server", "--uvloop", *queues]
    with _running([*command, *arguments]) as (_, line):
        yield connection_string(line.split()[1])


@contextmanager
def _running(
    command: list[str], tree: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    if tree is not None:
        environment["PYTHONPATH"] = str(tree)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree
    )
    assert process.stdout is not None
    try:
        line = ""
        while not line.startswith("ready"):
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{command[2]} ended before it was ready")
        yield process, line
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
