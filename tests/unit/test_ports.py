"""Ports that are kept for a process until it listens."""

from __future__ import annotations

import socket

import pytest

from bridge.broker.node.ports import Ports


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
