"""The examples of the documentation, as they stand but for the port."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.node import RunNode

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(scope="module")
def config() -> Path:
    """The entities that the examples use."""
    return EXAMPLES / "Config.json"


def source_for(bridge: Bridge, name: str) -> str:
    """An example's text, with the bridge's port in its connection string."""
    text = (EXAMPLES / name).read_text()
    assert "sb://localhost;" in text
    return text.replace("sb://localhost;", f"sb://localhost:{bridge.port};")


def run_python(source: str, **environment: str) -> str:
    """Run a program; return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def test_python(bridge: Bridge) -> None:
    """The Python SDK receives what it has sent."""
    assert run_python(source_for(bridge, "sdk.py")).endswith("two apples\n")


def test_node(bridge: Bridge, run_node: RunNode) -> None:
    """So does the JavaScript SDK."""
    printed = run_node("--input-type=module", "-e", source_for(bridge, "sdk.mjs"))

    assert printed.endswith("two pears\n")


def test_native(start_bridge: StartBridge) -> None:
    """A RabbitMQ client gets its own message numbered."""
    bridge = start_bridge()
    source = (EXAMPLES / "native.py").read_text()
    printed = run_python(source, RABBITMQ_URL=bridge.amqp_url)

    assert printed.endswith(" 3 b'two plums'\n")


@pytest.mark.parametrize("name", ["sdk.py", "sdk.mjs", "native.py"])
def test_they_are_short(name: str) -> None:
    """None is longer than sixteen lines."""
    assert len((EXAMPLES / name).read_text().splitlines()) <= 16
