"""The wheel in an environment of its own, without any extra: the library works, and is typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.bridge import Bridge

pytestmark = pytest.mark.sdks

ROOT = Path(__file__).parents[2]
ENTITIES = {"orders": {}}

SENDING = """
import sys
from busbridge.client import ServiceBusClient, ServiceBusMessage
with ServiceBusClient(sys.argv[1]) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("two apples"))
"""
RECEIVING = """
import asyncio, sys
from busbridge.client.aio import ServiceBusClient
async def main():
    async with ServiceBusClient(sys.argv[1]) as client:
        async with client.get_queue_receiver("orders", max_wait_time=120) as receiver:
            (message,) = await receiver.receive_messages()
            print(message.sequence_number, message)
            await receiver.complete_message(message)
asyncio.run(main())
"""
SAME = """
import busbridge.client, busbridge.client.aio, bridge.client, bridge.client.aio, sys
assert busbridge.client.ServiceBusClient is bridge.client.ServiceBusClient
assert busbridge.client.aio.ServiceBusClient is bridge.client.aio.ServiceBusClient
missing = {"aiohttp", "cryptography", "prometheus_client", "uvloop", "azure"}
assert not missing & {name.partition(".")[0] for name in sys.modules}
"""
TYPED = """
from busbridge.client import ServiceBusClient
reveal_type(ServiceBusClient.from_connection_string)
"""


def run(*command: object) -> str:
    """Run a command; fail with all that it said."""
    done = subprocess.run(
        [str(each) for each in command],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{command[1:4]}: {done.stdout[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("busbridge-*.whl")
    run(sys.executable, "-m", "venv", folder / "venv")
    made = folder / "venv" / "bin" / "python"
    run(made, "-m", "pip", "install", "--quiet", wheel)
    return made


def test_both_lanes_work(python: Path, bridge: Bridge) -> None:
    """One sends, the other receives, under the wheel's own name."""
    run(python, "-c", SENDING, bridge.amqp_url)
    assert run(python, "-c", RECEIVING, bridge.amqp_url) == "1 two apples\n"


def test_the_names_are_the_same_classes(python: Path) -> None:
    """And nothing of the bridge's packages is there, or was needed."""
    run(python, "-c", SAME)


def test_the_command_names_the_extra(python: Path) -> None:
    """There is a command, which says what it lacks."""
    done = subprocess.run(
        [str(python.with_name("busbridge")), "serve"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "'.[serve]'" in done.stderr) == (2, True)


def test_the_command_works_without_the_extra(python: Path) -> None:
    """It tells its version, and writes RabbitMQ's definitions."""
    busbridge = python.with_name("busbridge")
    assert run(busbridge, "--version").startswith("busbridge 0.")
    config = ROOT / "docs" / "examples" / "Config.json"
    assert '"orders"' in run(busbridge, "policies", "generate", config, "--to", "definitions")


def test_the_library_is_typed(python: Path, tmp_path: Path) -> None:
    """mypy finds the classes behind the wheel's name."""
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    said = run(
        *(sys.executable, "-m", "mypy", "--strict", "--python-executable", python),
        *("--cache-dir", tmp_path / "cache", file),
    )
    assert "bridge.client.sync.client.ServiceBusClient" in said
