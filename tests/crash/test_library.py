"""The library under load on both lanes, while RabbitMQ, the bridge or its own process is killed.

    make test-kills ARGS="-k library -s"      three kills of each
    make soak ARGS="-k library -s"            twenty of each

print how many answered completions came back. A client remembers what it has settled itself, so a
second copy may reach another client: that is counted. What is lost, torn, numbered twice, early or
expired is a fault.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO

import pytest

from tests.acceptance.lanes import LANES
from tests.crash.events import Accepted, Event, Killed, Settled, from_line
from tests.crash.history import Fault, came_back, check
from tests.crash.load import LOCK_MS, now_ms
from tests.crash.siege import AHEAD_MS, Notes, Siege, story, wait_for
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.kills

KILLS = 3
MANY = pytest.param(20, marks=pytest.mark.soak)
BACK_S = 180.0

TWICE = {"after completion", "held twice", "count falls"}
"""What a second copy looks like that reaches another client: counted."""

CLIENTS = 8
"""More than one: what one client has settled another does not know."""


@dataclass
class Worker:
    """A process with clients of one role and lane; killed and started again.

    Attributes:
        notes: where its events go.
    """

    role: str
    lane: str
    bridge: Bridge
    notes: Notes
    life: int = 0
    _process: subprocess.Popen[str] | None = field(default=None, init=False)
    _reader: threading.Thread | None = field(default=None, init=False)
    _said: IO[str] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it, with identities of this life."""
        self.life += 1
        mark = f"{self.lane[0]}{self.life}x"
        # A file: a pipe that nobody reads is full after some kills, and then all loggers stand.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-m", "tests.crash.load", self.role),
                *(self.bridge.connection_string, self.bridge.amqp_url, mark, self.lane),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()

    def kill(self) -> None:
        """End it at once."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """End it in good order; it must have found no fault."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        code, said = self._end()
        assert code == 0, f"{self.role} on {self.lane}: {said[-2000:]}"

    def _end(self) -> tuple[int, str]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        assert self._reader is not None
        assert self._said is not None
        self._reader.join(120)
        code = process.wait(120)
        self._said.seek(0)
        said = self._said.read()
        for stream in (process.stdin, process.stdout, self._said):
            stream.close()
        return code, said

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):  # the last one of a process that is killed may be cut
                self.notes.add(from_line(line))


class LibrarySiege:
    """A bridge, and clients of both lanes at work.

    Attributes:
        load, side: what happened in the two queues.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.load, self.side = Notes(), Notes()
        self.workers = [
            Worker(role, lane, bridge, notes)
            for lane in LANES[1:]
            for role, notes in (("library", self.load), ("library-side", self.side))
        ]

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """Have all at work meanwhile; afterwards each has stopped in good order."""
        with ExitStack() as ends:
            for worker in self.workers:
                worker.start()
                ends.callback(worker.stop)
            self.progress()
            yield
            self.progress()

    def progress(self, *, within_s: float = BACK_S) -> None:
        """Wait until messages are accepted and settled again, in both queues."""
        for notes in (self.load, self.side):
            for kind in (Accepted, Settled):
                before = notes.count(kind)
                wait_for(
                    f"another {kind.__name__}",
                    lambda kind=kind, before=before, notes=notes: notes.count(kind) > before,  # type: ignore[misc]
                    within_s=within_s,
                )

    def note_kill(self, begun_ms: int, *, is_broker: bool = False) -> None:
        """Note that a process has died."""
        kill: Event = Killed(now_ms(), is_broker=is_broker, begun_ms=begun_ms)
        for notes in (self.load, self.side):
            notes.add(kill)

    def judge(self, what: str, kills: int) -> None:
        """Drain both queues through the gateway; fail with every fault; print what came twice."""
        siege = Siege(self.bridge)
        faults, shown = [], []
        for queue, notes, ahead_s in (
            ("load", self.load, AHEAD_MS / 1000 + 3),
            ("side", self.side, 0),
        ):
            siege.drain(queue, notes, quiet_s=max(LOCK_MS / 1000 + 1, ahead_s))
            events = notes.events()
            twice, found = _parted(check(events, bridges=CLIENTS))
            faults += found
            shown += [f"{fault}\n{story(fault, events)}" for fault in found[:10]]
            counts = Counter(type(event).__name__ for event in events)
            shown.append(
                f"{queue}: {came_back(events)} of {counts['Settled']} answered completions came "
                f"back in {kills} kills of {what}; second copies: {twice}; {dict(counts)}"
            )
        print("", *shown, sep="\n")
        assert not faults, "\n".join([f"{len(faults)} faults:", *shown])


def _parted(found: list[Fault]) -> tuple[dict[str, int], list[Fault]]:
    """Return how much came twice, by kind, and what must not be."""
    twice = Counter(each.kind for each in found if each.kind in TWICE)
    return dict(twice), [each for each in found if each.kind not in TWICE]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [KILLS, MANY])
def test_rabbitmq_is_killed(
    start_broker: Callable[[], Broker], start_bridge: StartBridge, kills: int
) -> None:
    """The clients connect again by themselves."""
    broker = start_broker()
    assert broker.node is not None
    siege = LibrarySiege(start_bridge(on=broker, vhost="/"))
    chance = random.Random(kills)
    with siege.under_load():
        for _ in range(kills):
            time.sleep(chance.uniform(1, 4))
            begun_ms = now_ms()
            broker.node.kill()
            siege.note_kill(begun_ms, is_broker=True)
            broker.node.start()
            siege.progress()
    siege.judge("RabbitMQ", kills)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [KILLS, MANY])
def test_the_bridge_is_killed(start_bridge: StartBridge, kills: int) -> None:
    """Sends and receives go on; numbers, schedules and cancels as soon as it is back."""
    siege = LibrarySiege(start_bridge())
    chance = random.Random(kills)
    with siege.under_load():
        for _ in range(kills):
            time.sleep(chance.uniform(0.2, 3))
            begun_ms = now_ms()
            siege.bridge.kill()
            siege.note_kill(begun_ms)
            siege.bridge.start()
            siege.progress()
    siege.judge("the bridge", kills)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [KILLS, MANY])
def test_a_client_is_killed(start_bridge: StartBridge, kills: int) -> None:
    """The messages that it held come again, at once, to the others."""
    siege = LibrarySiege(start_bridge())
    chance = random.Random(kills)
    with siege.under_load():
        for _ in range(kills):
            time.sleep(chance.uniform(0.2, 3))
            worker = chance.choice(siege.workers)
            begun_ms = now_ms()
            worker.kill()
            siege.note_kill(begun_ms)
            worker.start()
            siege.progress()
    siege.judge("a client", kills)
