"""A script that meets a user's classic queue of the same name."""

from __future__ import annotations

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
    """It fails, and names the queue; when that is gone it does its work, and again."""
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
    for name in ("second", "third"):
        run_bash(broker, script, folder(tmp_path, name))
