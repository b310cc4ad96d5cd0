"""The examples of the documentation, as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.node import RunNode

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(scope="module")
def config() -> Path:
    """The entities that the examples use."""
    return EXAMPLES / "Config.json"


def run_python(source: str, **environment: str) -> str:
    """Run a program; return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    ).stdout


def test_python(bridge: Bridge) -> None:
    """The Python SDK receives what it has sent."""
    source = (EXAMPLES / "sdk.py").read_text()
    printed = run_python(source, SERVICEBUS_CONNECTION_STRING=bridge.connection_string)

    assert printed.endswith("two apples\n")


def test_node(bridge: Bridge, run_node: RunNode) -> None:
    """So does the JavaScript SDK."""
    source = (EXAMPLES / "sdk.mjs").read_text()
    address = bridge.connection_string
    printed = run_node("--input-type=module", "-e", source, SERVICEBUS_CONNECTION_STRING=address)

    assert printed.endswith("two pears\n")


def test_native(start_bridge: StartBridge) -> None:
    """A RabbitMQ client gets its own message numbered."""
    bridge = start_bridge()
    source = (EXAMPLES / "native.py").read_text()
    printed = run_python(source, RABBITMQ_URL=bridge.amqp_url)

    assert printed.endswith(" 3 b'two plums'\n")


def test_library(start_bridge: StartBridge) -> None:
    """The library makes a queue, and receives what it has sent."""
    bridge = start_bridge()
    printed = run_python((EXAMPLES / "library.py").read_text(), RABBITMQ_URL=bridge.amqp_url)

    assert printed == "1 two figs\n"


def test_plugin(broker: Broker, vhost: str) -> None:
    """An application's test runs with the plugin, and leaves no queue behind."""
    flags = f"--busbridge-rabbitmq-url={broker.url_of(vhost)}"
    management = f"--busbridge-management-url={broker.management_url}"
    assert "1 passed" in run_pytest(flags, management)
    names = [each["name"] for each in broker.management("GET", f"/api/queues/{vhost}")]
    assert [name for name in names if not name.startswith("$sb/")] == []


@pytest.mark.sdks
def test_plugin_alone() -> None:
    """So it does with nothing given: the plugin starts a RabbitMQ of its own."""
    assert "1 passed" in run_pytest()


def run_pytest(*flags: str) -> str:
    """Run the example's test in a pytest of its own; return what it prints."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"),
            *("-p", "no:busbridge", "-p", "bridge.testing.plugin"),  # installed here or not
            *(str(EXAMPLES / "test_orders.py"), *flags),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "name",
    ["sdk.py", "sdk.mjs", "native.py", "library.py", "test_orders.py", "container.py"],
)
def test_they_are_short(name: str) -> None:
    """No example is longer than twenty lines."""
    assert len((EXAMPLES / name).read_text().splitlines()) <= 20
