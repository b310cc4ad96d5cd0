"""A script that meets a user's queue of the same name, which an import would leave as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pika
import pytest

from bridge.model import entity as model
from bridge.topology import compiler
from bridge.topology.capabilities import Capabilities
from bridge.topology.plain import compile_plain
from policies.writers import WRITERS, Wanted
from tests.fixtures.broker import Broker
from tests.integration.test_writers import run_bash
from tests.unit.policies.windows import Cmd, powershell

pytestmark = pytest.mark.long

NAMESPACE = model.Namespace(queues=(model.Queue(name="orders"), model.Queue(name="more")))


def folder(parent: Path, name: str) -> Path:
    """A new folder."""
    made = parent / name
    made.mkdir()
    return made


@pytest.mark.parametrize("flavour", ["bridge", "plain"])
def test_it_says_so_and_changes_nothing(
    broker: Broker,
    vhost: str,
    pika_connection: pika.BlockingConnection,
    tmp_path: Path,
    flavour: str,
) -> None:
    """It fails, and names the queue: a classic one, and a quorum queue that dead-letters nothing.

    When that is gone it does its work, and again.
    """
    made = compiler.compile if flavour == "bridge" else compile_plain
    target = Capabilities.of("4.3")
    wanted = Wanted(topology=made(NAMESPACE, target), vhost=vhost, target=target)
    script = WRITERS["bash"](wanted).text
    channel = pika_connection.channel()
    channel.queue_declare("orders", durable=True)
    with pytest.raises(AssertionError) as caught:
        run_bash(broker, script, folder(tmp_path, "first"))
    said = str(caught.value)
    assert "queue_of_another_type_is_there" in said
    assert "orders" in said
    assert broker.management("GET", f"/api/policies/{vhost}") == []
    channel.queue_delete("orders")
    channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "quorum"})
    with pytest.raises(AssertionError) as caught:
        run_bash(broker, script, folder(tmp_path, "quorum"))
    assert "queue_without_our_arguments_is_there" in str(caught.value)
    channel.queue_delete("orders")
    for name in ("second", "third"):
        run_bash(broker, script, folder(tmp_path, name))


@pytest.mark.parametrize("to", ["cmd", "powershell"])
def test_windows_scripts_look_for_the_same_queues(
    broker: Broker, vhost: str, pika_connection: pika.BlockingConnection, tmp_path: Path, to: str
) -> None:
    """A real `rabbitmqctl` gets the same arguments from `cmd.exe` and from PowerShell."""
    assert broker.node is not None
    target = Capabilities.of("4.3")
    wanted = Wanted(topology=compile_plain(NAMESPACE, target), vhost=vhost, target=target)
    text = WRITERS[to](wanted).text
    calls = Cmd().run(text).calls if to == "cmd" else powershell(text)
    checks = [words for words, _ in calls if words[1] == "eval"]
    program = str(broker.node.write_rabbitmqctl(tmp_path))

    def looked() -> str:
        (words,) = checks
        done = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=False)
        return f"{done.returncode} {done.stdout}{done.stderr}"

    assert looked().startswith("0 ok")
    pika_connection.channel().queue_declare("more", durable=True)
    said = looked()
    assert not said.startswith("0 ")
    assert "queue_of_another_type_is_there" in said
    assert "more" in said
