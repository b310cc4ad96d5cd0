"""The private RabbitMQ of `busbridge serve`: its ports, and its death under a working bridge."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient

from bridge.cli.rabbitmq import STARTS_MAX
from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of, send, take
from tests.acceptance.test_serve import expect_sentence, own_name, processes_of, ready, serve
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long

ENTITIES = {"orders": {"LockDuration": "PT30S"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder."""
    return tmp_path / "data"


@pytest.fixture
def private(folder: Path, config: Path) -> Iterator[Bridge]:
    """A bridge with a private RabbitMQ, not started yet; nothing of it is left at the end."""
    bridge = Bridge(("--data-dir", str(folder), "--config", str(config)))
    yield bridge
    bridge.kill()
    eventually(lambda: not processes_of(folder))


def node_pid(folder: Path) -> int:
    """The process of RabbitMQ itself."""
    (found,) = [
        pid
        for pid in processes_of(folder)
        if b"beam.smp" in Path(f"/proc/{pid}/cmdline").read_bytes() and os.getsid(pid) == pid
    ]
    return found


def address(bridge: Bridge) -> str:
    """The address and the login of RabbitMQ's management page, by the `ready` line."""
    (line,) = [line for line in bridge.lines if line.startswith("ready")]
    found = re.search(r" management=http://(127\.0\.0\.1:\d+) login=(\w+/\w+) ", line)
    assert found is not None, line
    return f"http://{found[2].replace('/', ':')}@{found[1]}"


def overview(page: str) -> dict[str, object]:
    """Ask the management API as the `ready` line says."""
    login, _, place = page.removeprefix("http://").partition("@")
    request = urllib.request.Request(f"http://{place}/api/overview")
    request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def kept_ports(folder: Path) -> dict[str, int]:
    """The ports that the folder's node has at each start."""
    kept: dict[str, int] = json.loads((folder / "rabbitmq" / "ports.json").read_text())
    return kept


def test_its_ports_are_the_same_at_each_start(private: Bridge, folder: Path) -> None:
    """`ready` names both and a login that the management page takes."""
    private.start()
    first = private.amqp_url, address(private)
    assert str(overview(first[1])["rabbitmq_version"]) > "4"
    private.stop()
    private.amqp_url = ""
    private.lines.clear()
    private.start()
    assert (private.amqp_url, address(private)) == first


def test_a_port_of_its_that_is_taken_is_named_with_who_has_it(folder: Path) -> None:
    """The bridge ends, and says what to do; the file it names is there."""
    node = folder / "rabbitmq"
    node.mkdir(parents=True)
    with closing(socket.create_server(("127.0.0.1", 0))) as blocker:
        port = blocker.getsockname()[1]
        text = json.dumps({"amqp": port, "management": 20_001})
        (node / "ports.json").write_text(text)
        done = serve("--data-dir", str(folder))

    holder = f"taken by {own_name()} (process {os.getpid()})"
    expect_sentence(done, 1, f"port {port}", holder, str(node / "ports.json"))


def test_killed_it_is_started_again(private: Bridge, folder: Path) -> None:
    """At its old address and with its messages; sends are answered again by themselves."""
    private.start()
    before = private.amqp_url, kept_ports(folder)
    with client_of(private) as client:
        send(client, "orders", "before")
        for _ in range(2):
            killed = node_pid(folder)
            os.kill(killed, signal.SIGKILL)
            eventually(lambda: ready(private)[0] == 503)
            eventually(lambda: ready(private)[0] == 200, within_s=120)
            assert node_pid(folder) != killed

    with client_of(private) as client, client.get_queue_receiver("orders") as receiver:
        send(client, "orders", "after")
        assert [str(message) for message in take(receiver, 2)] == ["before", "after"]
    assert (private.amqp_url, kept_ports(folder)) == before
    ended = [line for line in private.lines if "background.ended task='private RabbitMQ" in line]
    assert len(ended) == 2
    assert all("SIGKILL" in line for line in ended)
    assert private.stop() == 0


def test_a_send_waits_while_it_is_started_again(private: Bridge, folder: Path) -> None:
    """A client that tries again, as SDKs do, sees no error."""
    private.start()
    with ServiceBusClient.from_connection_string(
        private.connection_string, retry_total=60, retry_backoff_factor=1, retry_backoff_max=2
    ) as client:
        os.kill(node_pid(folder), signal.SIGKILL)
        send(client, "orders", "meanwhile")
        with client.get_queue_receiver("orders") as receiver:
            assert [str(message) for message in take(receiver)] == ["meanwhile"]


def test_the_bridge_ends_when_it_cannot_be_started_again(private: Bridge, folder: Path) -> None:
    """After some tries; the last line says why."""
    private.start()
    configuration = folder / "rabbitmq" / "enabled_plugins"
    configuration.unlink()
    configuration.mkdir()
    os.kill(node_pid(folder), signal.SIGKILL)

    assert private.wait(within_s=120) == 1
    assert "busbridge: " in "\n".join(private.lines[-3:])
    assert "cannot be started" in "\n".join(private.lines[-3:])
    failed = [line for line in private.lines if "background.ended task='private RabbitMQ" in line]
    assert len(failed) == STARTS_MAX
    eventually(lambda: not processes_of(folder))


def test_ctrl_c_ends_it_with_one_line(private: Bridge, folder: Path) -> None:
    """Neither RabbitMQ's farewell nor a lost connection is told: the bridge has left before."""
    private.start()
    with client_of(private) as client:
        send(client, "orders", "one", "two")
        os.kill(private.pid, signal.SIGINT)
        assert private.wait(within_s=120) == 0
    told = private.lines[[" serve.stopping" in line for line in private.lines].index(True) :]
    told = [line for line in told if "connection.closed" not in line]
    assert len(told) == 1, told
