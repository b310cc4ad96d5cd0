"""Fixtures of the conformance tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.gateway.client.settings import GatewaySettings
from bridge.machine.amqp10.limits import Limits
from bridge.model.entity import Queue
from tests.conformance.door import Door


@pytest.fixture
def door() -> Iterator[Door]:
    """A gateway with a queue `q`; its frames are small, so that much needs several."""
    settings = GatewaySettings(limits=Limits(frame_bytes_max=4_096))
    with Door(Queue(name="q", max_message_size_kb=1_024), settings=settings) as running:
        yield running


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and a name of Azure's, and its key."""
    folder = tmp_path_factory.mktemp("certified")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subject = [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost,DNS:one.servicebus.windows.net",
    ]
    files = ["-keyout", str(key), "-out", str(certificate)]
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    subprocess.run([*request, *files, *subject], check=True, capture_output=True)
    return certificate, key
