"""Ports that are kept for a process until it listens."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.broker.node.folder import NodeFolder
from bridge.broker.node.port_holder import holder_of
from bridge.broker.node.ports import LASTING, Ports, PortTaken, lasting_ports


def test_a_reserved_port_is_for_whoever_listens_on_it() -> None:
    """A server can have it; nobody else is given it, and nobody answers there before."""
    with Ports(1) as ports:
        address = "127.0.0.1", ports.numbers[0]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with (
            socket.create_server(address) as server,
            socket.create_connection(address) as client,
            server.accept()[0] as accepted,
        ):
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


def test_a_released_port_is_free_for_all() -> None:
    """Nothing is left that holds it."""
    with Ports(1) as ports:
        pass
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports.numbers[0]))


def test_ports_differ() -> None:
    """Reserved ports are given once."""
    with Ports(20) as some, Ports(20) as others:
        assert len({*some.numbers, *others.numbers}) == 40


def test_a_port_that_was_asked_for() -> None:
    """It is tried first; when it is taken, the error has its number."""
    (wanted,) = lasting_ports(1)
    with Ports(3, asked_for=(wanted, 0)) as ports:
        assert ports.numbers[0] == wanted
        assert len(set(ports.numbers)) == 3
    with socket.create_server(("127.0.0.1", wanted)), pytest.raises(PortTaken) as caught:
        Ports(2, asked_for=(0, wanted))
    assert (caught.value.port, caught.value.errno) == (wanted, errno.EADDRINUSE)


def test_ports_to_be_kept_are_none_that_outgoing_connections_get() -> None:
    """Or one would be taken by chance when the server starts again."""
    first, _ = (
        int(number) for number in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    )
    ports = lasting_ports(2)
    assert len(set(ports)) == 2
    assert all(port in LASTING and port < first for port in ports)


def test_a_folder_keeps_its_ports(tmp_path: Path) -> None:
    """A file that is none is written anew."""
    folder = NodeFolder(tmp_path, "n@localhost", configuration={}, plugins=(), cookie=None)
    kept = folder.kept_ports()
    assert folder.kept_ports() == kept
    for text in ("", "[]", "{}", '{"amqp": null, "management": 1}'):
        folder.ports_file.write_text(text)
        assert len(folder.kept_ports()) == 2


def test_who_has_a_port_is_told() -> None:
    """This process, or another one; nobody in particular when nobody has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = Path("/proc/self/comm").read_text().strip()
        assert holder_of(server.getsockname()[1]) == f"{name} (process {os.getpid()})"
    program = "import socket; s = socket.create_server(('::1', 0), family=socket.AF_INET6); "
    other = subprocess.Popen(
        [sys.executable, "-c", program + "print(s.getsockname()[1], flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout is not None
        assert holder_of(int(other.stdout.readline())).endswith(f"(process {other.pid})")
        other.communicate("\n")
    (free,) = lasting_ports(1)
    assert holder_of(free) == "another process"
