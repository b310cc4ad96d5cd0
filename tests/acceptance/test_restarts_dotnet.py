"""A restart of the bridge under a session processor of the unmodified .NET client."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from azure.servicebus import ServiceBusMessage

from tests.acceptance.driver import dotnet_program
from tests.acceptance.sdk import client_of
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.sdks

SLOTS = 4

ENTITIES = {"sessions": {"LockDuration": "PT1M", "RequiresSession": True}}


class Processor:
    """The program, and what it has printed.

    Attributes:
        begun, done: the bodies, in order.
        errors: the texts of the errors that its processor was told of.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.errors: list[str] = []
        self._process = process
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        lists = {"begun": self.begun, "done": self.done, "error": self.errors}
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            lists[said["what"]].append(said["body"])


@contextmanager
def processor_of(bridge: Bridge) -> Iterator[Processor]:
    """Run the program until the end of the block."""
    command = [*dotnet_program("restarts"), bridge.connection_string, "sessions"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Processor(process)
        finally:
            process.kill()


def send(bridge: Bridge, name: str) -> list[str]:
    """Send a message to each of as many sessions as there are slots; return the bodies."""
    bodies = [f"{name}-{number}" for number in range(SLOTS)]
    with client_of(bridge) as client, client.get_queue_sender("sessions") as sender:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body, session_id=body))
    return bodies


def test_each_slot_comes_back_after_a_restart(start_bridge: StartBridge) -> None:
    """A slot whose link ends while its handler runs is lost, so the bridge waits for it.

    Each message is worked on once, and as many at a time as before.
    """
    bridge = start_bridge("--drain", "60")
    with processor_of(bridge) as processor:
        before = send(bridge, "slow-before")
        eventually(lambda: sorted(processor.begun) == before, "a message in each slot")
        assert bridge.stop(within_s=120) == 0
        assert sorted(processor.done) == before
        bridge.start()
        after = send(bridge, "slow-after")
        eventually(lambda: sorted(processor.done) == sorted([*before, *after]), "all are done")

        assert sorted(processor.begun) == sorted([*before, *after])
        again = send(bridge, "slow-again")
        eventually(lambda: set(again) <= set(processor.begun), "a message in each slot")
        assert not set(again) & set(processor.done), "all slots work at a time"
