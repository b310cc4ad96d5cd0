"""Batch delete under load and kills: what is counted is gone, and nothing else is.

Messages are sent and deleted, and nobody receives until the end. Who deletes is told counts, and no
names; so the judgement is by counts, and by what was younger than any delete.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.events import Accepted, Delivered, Killed, Sent
from tests.crash.history import UNSURE_MS
from tests.crash.siege import Notes, Siege, clients, wait_for
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker

pytestmark = [pytest.mark.kills, pytest.mark.filterwarnings("ignore::ResourceWarning")]

QUEUE = "deleted"
PYTHON = Path(".venv-preview/bin/python")
"""Made by `make setup`: azure-servicebus 7.13.0b1 and websocket-client."""


class Deletes:
    """What a deleter has said: its calls, by number."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, int | None]] = {}

    def add(self, line: str) -> None:
        """Note a line of it."""
        said = json.loads(line)
        self._calls[said["call"]] = said

    @property
    def counted(self) -> int:
        """How many messages the answered calls say they have deleted."""
        return sum(call["count"] or 0 for call in self._calls.values())

    @property
    def unsure(self) -> int:
        """How many messages the unanswered calls may have deleted."""
        return sum(call["asked"] or 0 for call in self._calls.values() if call["count"] is None)

    @property
    def last_before_ms(self) -> int:
        """No call has asked for messages that were enqueued from then on."""
        return max(call["before_ms"] or 0 for call in self._calls.values())


@contextmanager
def deleting(bridge: Bridge, root: Path) -> Iterator[Deletes]:
    """Have messages deleted meanwhile."""
    command = [root / PYTHON, root / "tests" / "crash" / "deleter.py"]
    process = subprocess.Popen(
        [*command, bridge.connection_string, QUEUE, str(bridge.port), str(bridge.ca)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines, deletes = process.stdout, Deletes()
    reader = threading.Thread(target=lambda: [deletes.add(line) for line in lines])  # type: ignore[func-returns-value]
    reader.start()
    try:
        yield deletes
    finally:
        process.stdin.close()
        reader.join()
        lines.close()
        assert process.wait(timeout=120) == 0


def besieged(
    siege: Siege, root: Path, kills: int, broker: Broker | None = None
) -> tuple[Notes, Deletes]:
    """Kill so many times while messages are sent and deleted; drain what is left."""
    notes, bridge = Notes(), siege.bridge
    with deleting(bridge, root) as deletes, clients("fill", bridge, "a", notes):

        def progress() -> None:
            accepted, counted = notes.count(Accepted), deletes.counted
            wait_for("another accepted", lambda: notes.count(Accepted) > accepted, within_s=120)
            wait_for("another deleted", lambda: deletes.counted > counted, within_s=120)

        siege.kill_in_turn(notes, kills=kills, progress=progress, broker=broker)
    siege.drain(QUEUE, notes, quiet_s=8)
    return notes, deletes


def judge(notes: Notes, deletes: Deletes) -> str:
    """Fail with what is wrong; return the counts."""
    accepted: set[str] = set()
    sent_ms: dict[str, int] = {}
    left: set[str] = set()
    kills_ms: list[int] = []
    for event in notes.events():
        match event:
            case Sent(ids, at_ms):
                sent_ms.update(dict.fromkeys(ids, at_ms))
            case Accepted(ids):
                accepted.update(ids)
            case Delivered():
                assert event.id in sent_ms, f"{event.id} was never sent"
                left.add(event.id)
            case Killed():
                kills_ms.append(event.at_ms)
    unanswered = len(sent_ms.keys() - accepted)
    gone = len(accepted - left)
    counts = (
        f"{len(accepted)} accepted, {unanswered} unanswered, {len(left)} left, {gone} gone; "
        f"{deletes.counted} counted as deleted, {deletes.unsure} perhaps"
    )
    young = {each for each in accepted if sent_ms[each] > deletes.last_before_ms}
    assert not young - left, f"{len(young - left)} too young for any delete are gone: {counts}"
    assert gone <= deletes.counted + deletes.unsure, f"messages are lost: {counts}"
    # A kill may leave a message twice, and undo an ack of its last moments: both are counted twice.
    twice = sum(
        any(0 <= kill_ms - at_ms <= 2 * UNSURE_MS for kill_ms in kills_ms)
        for at_ms in sent_ms.values()
    )
    undone = len(kills_ms) * 60
    assert deletes.counted <= gone + unanswered + twice + undone, (
        f"more counted than gone: {counts}"
    )
    return counts


def test_deletes_count_what_is_gone_over_kills_of_the_bridge(
    start_bridge: StartBridge, pytestconfig: pytest.Config
) -> None:
    """Three kills."""
    siege = Siege(start_bridge())
    print(judge(*besieged(siege, pytestconfig.rootpath, 3)))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_deletes_count_what_is_gone_over_twenty_kills(
    start_broker: Callable[[], Broker], start_bridge: StartBridge, pytestconfig: pytest.Config
) -> None:
    """Twenty kills, in turn of the bridge and of RabbitMQ."""
    broker = start_broker()
    siege = Siege(start_bridge(on=broker, vhost="/"))
    print(judge(*besieged(siege, pytestconfig.rootpath, 20, broker)))
