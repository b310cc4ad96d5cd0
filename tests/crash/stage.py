"""A bridge with some entities, and the commands that are run on it, through a wire that holds."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Busbridge, Said
from tests.brokers.node import Node
from tests.fixtures.held_wire import HeldWire, Way
from tests.fixtures.waiting import eventually

ENDS_S = 300.0
"""A command that was hurt has ended by then: it may wait a minute for its target."""

DEAD = "/$DeadLetterQueue"

PATHS = ("source", "other", "events/Subscriptions/audit", "events/Subscriptions/ledger")
"""All that can be received from, each with a dead-letter queue."""

_PROPERTIES = {"LockDuration": "PT5S", "MaxDeliveryCount": 100}

ENTITIES = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [{"Name": name, "Properties": _PROPERTIES} for name in PATHS[:2]],
                "Topics": [
                    {
                        "Name": "events",
                        "Subscriptions": [
                            {"Name": name, "Properties": _PROPERTIES}
                            for name in ("audit", "ledger")
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "Console"},
    }
}

Ledger = Counter[tuple[str, str, str]]
"""How often each message is at a path, in a state: (path, state, body).

A scheduled message's state names its time, too.
"""

_MARK = "mark"


def entities_in(folder: Path) -> Path:
    """Write the entities, as the bridge reads them."""
    path = folder / "Config.json"
    path.write_text(json.dumps(ENTITIES))
    return path


@dataclass
class Run:
    """A command in a process of its own; what it says goes into files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def end(self) -> Said:
        """Wait for its end; it is no traceback."""
        try:
            code = self.process.wait(ENDS_S)
        finally:
            self.process.kill()
        said = Said(code, self.out.read_text(), self.err.read_text())
        assert "Traceback" not in said.err, said.err
        return said


@dataclass
class Stage:
    """What a command is run on.

    Attributes:
        wire: the only way to the bridge, so that it has one name.
        node: its RabbitMQ, if it may be killed.
        folder: for the files of commands.
        is_untold: whether the bridge is not told which messages copies are of, as Azure is not.
        told: what has happened, for whoever reads a failure.
        written: all that commands have written, whole lines.
    """

    busbridge: Busbridge
    bridge: Bridge
    wire: HeldWire
    node: Node | None
    folder: Path
    is_untold: bool = False
    chance: random.Random = field(default_factory=random.Random)
    told: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    _marks: int = 0

    def start(self, *words: str) -> Run:
        """Start a command in a process of its own."""
        at = len(list(self.folder.glob("run-*.out")))
        out, err = self.folder / f"run-{at}.out", self.folder / f"run-{at}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                self.busbridge.line(*words),
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            )  # fmt: skip
        return Run(process, out, err)

    def run(self, *words: str) -> Said:
        """Run a command to its end in this process, undisturbed."""
        said = self.busbridge(*words)
        self.note(words, said)
        return said

    def note(self, words: Iterable[str], said: Said) -> None:
        """Keep what a command has written; a line that a kill has cut short counts for nothing."""
        whole, _, _ = said.out.rpartition("\n")
        self.written += whole.splitlines()
        last = said.err.strip().splitlines()[-2:]
        self.told.append(f"{' '.join(words)}: {said.code} {' '.join(last)}")

    def send(self, entity: str, lines: Iterable[dict[str, object]], *words: str) -> None:
        """Send lines of messages."""
        text = "".join(f"{json.dumps(each)}\n" for each in lines)
        self.busbridge.done("send", entity, *words, given=text)

    def receive(self, path: str, count: int, *words: str) -> None:
        """Receive so many and settle them."""
        given = ("--count", str(count), "--wait", "60", *words)
        said = self.busbridge.done("receive", path, *given)
        assert len(said.rows) == count, said.err

    def numbered(self) -> list[tuple[int, str, str, str]]:
        """Return all there is: number, path, state, body; none has the number of another."""
        found = []
        for path in PATHS:
            own = []
            for words, suffix in (((), ""), (("--dead-letter",), DEAD)):
                rows = self.busbridge.done("peek", path, "--all", *words).rows
                own += [
                    (each["sequence_number"], path + suffix, _state(each), each["body"])
                    for each in rows
                ]
            assert max(Counter(each[0] for each in own).values(), default=1) == 1, own
            found += [each for each in own if not each[3].startswith(_MARK)]
        return found

    def ledger(self) -> Ledger:
        """Return where each message is."""
        return Counter(each[1:] for each in self.numbered())

    def received(self, places: Ledger) -> Ledger:
        """Return where each message is, of those that receivers get by receiving them.

        When a bridge is killed, a peek guesses by RabbitMQ's count which of the last are gone
        (docs/design/browse.md). They are given back uncounted.
        """
        found = Counter({each: n for each, n in self.ledger().items() if each[1] != "active"})
        for place in sorted({path for path, state, _ in places if state == "active"}):
            words = ("receive", place, "--all", "--wait", "7", "--settle", "release")
            rows = self.busbridge.done(*words).rows
            bodies = {each["sequence_number"]: each["body"] for each in rows}
            found += Counter(
                (place, "active", body) for body in bodies.values() if not body.startswith(_MARK)
            )
        return found

    def fence(self, *entities: str) -> None:
        """Return when all that was sent to entities before is there to be seen."""
        self._marks += 1
        mark = f"{_MARK} {self._marks}"
        for entity in entities or ("source", "other", "events"):
            self.send(entity, [{"body": mark}])
            path = PATHS[2] if entity == "events" else entity

            def is_there(path: str = path) -> bool:
                rows = self.busbridge.done("peek", path, "--all").rows
                return any(each["body"] == mark for each in rows)

            eventually(is_there, f"{path} has {mark}")


Blow = Callable[[Stage, Run], None]
"""Hurts something while the wire holds; afterwards all is there again, and nothing is held."""


def _end_wire(stage: Stage) -> None:
    """What is held is carried, or lost."""
    if stage.chance.random() < 0.5:
        stage.wire.let_go()
    else:
        stage.wire.cut()


def kill(stage: Stage, run: Run) -> None:
    """Kill the command."""
    run.process.kill()
    _end_wire(stage)


def interrupt(stage: Stage, run: Run) -> None:
    """Interrupt the command twice; it waits for no answer then."""
    run.process.send_signal(signal.SIGINT)
    eventually(lambda: run.has_ended or "stopping" in run.err.read_text(), "it has heard of it")
    run.process.send_signal(signal.SIGINT)
    run.process.wait(ENDS_S / 5)
    _end_wire(stage)


def cut(stage: Stage, _: Run) -> None:
    """Cut the command's connections."""
    stage.wire.cut()


def kill_bridge(stage: Stage, _: Run) -> None:
    """Kill the bridge, and start it again."""
    stage.bridge.kill()
    _end_wire(stage)
    stage.bridge.start()


def kill_rabbitmq(stage: Stage, _: Run) -> None:
    """Kill RabbitMQ, and start it again."""
    assert stage.node is not None
    stage.node.kill()
    _end_wire(stage)
    stage.node.start()


def restart_rabbitmq(stage: Stage, _: Run) -> None:
    """Stop RabbitMQ in good order, and start it again."""
    assert stage.node is not None
    stage.node.rabbitmqctl("stop_app")
    _end_wire(stage)
    stage.node.rabbitmqctl("start_app")


def struck(
    stage: Stage,
    words: tuple[str, ...],
    blow: Blow,
    carried: dict[Way, int],
    least: float = 0.0,
) -> Said:
    """Run a command, hurt something at an instant by chance, and return what it said.

    Args:
        carried: the bytes that the whole command takes, about.
        least: the share of them before which nothing is hurt.
    """
    chance = stage.chance
    way = chance.choice(list(Way))
    count = chance.randint(1 + int(carried[way] * least), carried[way])
    stage.wire.hold_after(count, way)
    run = stage.start(*words)
    eventually(lambda: stage.wire.is_held or run.has_ended, "the wire holds")
    if stage.wire.is_held:
        stage.told.append(f"{blow.__name__} behind {count} bytes {way.value}")
        blow(stage, run)
    stage.wire.let_go()
    said = run.end()
    stage.note(words, said)
    return said


def _state(row: dict[str, Any]) -> str:
    state = str(row.get("state", "active"))
    return f"{state} {row['scheduled_enqueue_time']}" if state == "scheduled" else state


def skips(said: Said) -> list[int]:
    """Return the numbers of --skip that a command names."""
    return [int(each.replace(",", "")) for each in re.findall(r"--skip ([\d,]+)", said.err)]
