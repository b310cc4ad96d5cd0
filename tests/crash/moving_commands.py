"""The commands that move messages: what is there before, what is given, where each belongs then."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from bridge.operations.undo_file import entries
from tests.acceptance.busbridge import Said
from tests.crash.stage import DEAD, PATHS, Blow, Ledger, Stage, skips, struck
from tests.fixtures.held_wire import Way
from tests.fixtures.waiting import eventually

REDS: Final = 60
BLUES: Final = 8
"""Messages that are not meant stay as they are, wherever a command is killed."""

TOGETHER: Final = 3
"""Messages of one partition key, so of one batch."""

RED: Final = tuple(f"red {at}" for at in range(REDS))
BLUE: Final = tuple(f"blue {at}" for at in range(BLUES))
MEANT: Final = ("--where", "color = 'red'")
YES: Final = "--yes"
WAIT: Final = ("--wait", "7")
"""Longer than a lock: what a killed command has left locked comes within it."""

AUDIT: Final = PATHS[2]
SOON: Final = "2099-01-01T00:00:00.000Z"
LATER: Final = "2099-06-01T00:00:00.000Z"
BLOWS: Final = 2
DONE_WITHIN_S: Final = 90.0
"""So long it is given again: some of its messages are locked until their locks end."""

Words = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A command that is run until it is done.

    Attributes:
        words: the command, of a stage.
        belongs: where each message is at the end.
        carried: bytes that are carried in an undisturbed run, there and back, about.
        more: judges what else there must be at the end.
        again: what is given to go on, of what was given and said; `None`: the same.
        in_hand: messages of which a blow may leave copies behind, where the target is told nothing
            of who they are.
    """

    words: Callable[[Stage], Words]
    belongs: Ledger
    carried: tuple[int, int]
    more: Callable[[Stage], None] = lambda _: None
    again: Callable[[Stage, Words, Said], Words] | None = None
    in_hand: int = 0

    def play(self, stage: Stage, blow: Blow) -> None:
        """Run it with some blows, and then to its end."""
        words = self.words(stage)
        carried = dict(zip(Way, self.carried, strict=True))
        blows = stage.chance.randint(1, BLOWS)
        for _ in range(blows):
            said = struck(stage, words, blow, carried)
            words = self._next(stage, words, said)
        end_s = time.monotonic() + DONE_WITHIN_S
        is_over = False
        while set(stage.ledger()) != set(self.belongs) and time.monotonic() < end_s:
            said = stage.run(*words)
            assert said.code in (0, 1, 3, 4), said
            words = self._next(stage, words, said)
            if is_over and said.code == 0:
                break
            is_over = said.code == 0
        self._judge(stage, blows)
        self._run(stage, words)  # which is done already
        self._judge(stage, blows)
        self.more(stage)

    def _run(self, stage: Stage, words: Words) -> Words:
        """Run it undisturbed; return what is given to go on."""
        said = stage.run(*words)
        assert said.code in (0, 1, 3, 4), said
        return self._next(stage, words, said)

    def _judge(self, stage: Stage, blows: int) -> None:
        """Each message is where it belongs, once, and nothing is on its way."""
        stage.fence()
        found = stage.ledger()
        if found != self.belongs and not stage.is_untold:
            found = stage.received(found + self.belongs)
        missing, more = self.belongs - found, found - self.belongs
        is_explained = stage.is_untold and more.total() <= self.in_hand * blows
        if missing or (more and not is_explained) or more.keys() - self.belongs.keys():
            told = "\n".join(stage.told)
            lost, twice = sorted(missing.elements()), sorted(more.elements())
            raise AssertionError(f"missing: {lost}\nmore: {twice}\n{told}")

    def _next(self, stage: Stage, words: Words, said: Said) -> Words:
        return words if self.again is None else self.again(stage, words, said)


@dataclass(frozen=True)
class MovingCommand:
    """A command that moves messages, or two, the other of which undoes it.

    Attributes:
        before: puts messages where it takes them from.
    """

    before: Callable[[Stage], None]
    steps: tuple[Step, ...]

    def play(self, stage: Stage, blow: Blow) -> None:
        """Play its steps."""
        self.before(stage)
        for step in self.steps:
            step.play(stage, blow)


def at(path: str, bodies: Iterable[str], state: str = "active") -> Ledger:
    """Return a ledger of messages at one place."""
    return Counter((path, state, each) for each in bodies)


def lines() -> list[dict[str, object]]:
    """Return the messages as lines: red ones, and a blue one among them now and then."""
    bodies = list(RED)
    for place, blue in enumerate(BLUE):
        bodies.insert(place * (REDS // BLUES), blue)
    return [
        {
            "body": body,
            "message_id": body.replace(" ", "-"),
            "partition_key": f"p{place // TOGETHER}",
            "application_properties": {"color": body.split()[0]},
        }
        for place, body in enumerate(bodies)
    ]


# -- what is there before


def _nothing(stage: Stage) -> None:
    (stage.folder / "lines.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines()))


def _active(stage: Stage) -> None:
    stage.send("source", lines())
    stage.fence("source")


def _dead(stage: Stage) -> None:
    stage.send("source", lines())
    stage.receive("source", REDS + BLUES, "--settle", "dead-letter", "--reason", "bad")


def _dead_at_subscription(stage: Stage) -> None:
    stage.send("events", lines())
    stage.receive(AUDIT, REDS + BLUES, "--settle", "dead-letter", "--reason", "bad")


def _deferred(stage: Stage) -> None:
    stage.send("source", lines())
    stage.receive("source", REDS + BLUES, "--settle", "defer")


def _scheduled(stage: Stage) -> None:
    stage.send("source", lines(), "--schedule", SOON)


def _exported(stage: Stage) -> None:
    _active(stage)
    said = stage.busbridge.done("export", "source", *MEANT)
    (stage.folder / "lines.jsonl").write_text(said.out)


# -- what is given


def _undo_path(stage: Stage) -> Path:
    return stage.folder / "undo.jsonl"


def _given(*words: str, undo: bool = False, file: str = "") -> Callable[[Stage], Words]:
    """Return the words of a command, with the undo file, or with a file as the last."""

    def found(stage: Stage) -> Words:
        own = ("--undo", str(_undo_path(stage))) if undo else ()
        return (*words, *own, *((str(stage.folder / file),) if file else ()))

    return found


def _undo(stage: Stage) -> Words:
    return ("undo", str(_undo_path(stage)), YES, *WAIT)


# -- what else there must be


def _is_written_to_undo(stage: Stage) -> None:
    """Each message that was removed is in the undo file."""
    _, *rest = _undo_path(stage).read_text().splitlines()
    assert {each.message.data.decode() for each in entries(rest)} >= set(RED), stage.told


def _is_written(stage: Stage) -> None:
    """Each message was shown before it was settled."""
    shown = {json.loads(each).get("body") for each in stage.written}
    assert shown >= set(RED), stage.told


def _is_taken(stage: Stage) -> None:
    _is_written_to_undo(stage)
    _is_written(stage)


def _is_in_order(stage: Stage) -> None:
    """Messages of a file are numbered in its order."""
    if stage.is_untold:
        return
    own = [each for each in stage.numbered() if each[1] == "other"]
    text = (stage.folder / "lines.jsonl").read_text()
    bodies = [json.loads(each)["body"] for each in text.splitlines()]
    assert [each[3] for each in sorted(own)] == bodies, stage.told


# -- how to go on


def _send_on(stage: Stage, words: Words, said: Said) -> Words:
    """Look how much is there: it is what the command has said, where it could say something."""
    stage.fence("other")
    own = sorted(each for each in stage.numbered() if each[1] == "other")
    bodies = [str(each["body"]) for each in lines()]
    there = [each[3] for each in own]
    assert there == bodies[: len(there)], stage.told
    if said.code == 0:
        assert len(there) == len(bodies), stage.told
    named = skips(said)
    assert not named or len(there) in named, (said, len(there), stage.told)
    if "--skip" in words:
        words = words[: words.index("--skip")]
    return (*words, "--skip", str(len(there)))


def _undo_on(stage: Stage, words: Words, said: Said) -> Words:
    """Nobody else has received what is doubtful: it is sent, too, when the command offers that."""
    assert stage.told
    return (*words, "--doubtful") if "--doubtful sends them" in said.err else words


def _move_on(stage: Stage, words: Words, said: Said) -> Words:
    """Look that each message is scheduled once, wherever the command was cut off."""
    stage.fence("source")
    rows = stage.busbridge.done("schedule", "ls", "source", *MEANT).rows
    assert sorted(each["body"] for each in rows) == sorted(RED), (said, stage.told)
    return words


# -- the table

_BLUE_DEAD = at(f"source{DEAD}", BLUE)
_BLUE_DEFERRED = at("source", BLUE, "deferred")
_BLUE_SCHEDULED = at("source", BLUE, f"scheduled {SOON}")

PURGING: Final = (2_900, 22_000)
"""Bytes that a purge takes, about."""

COMMANDS: Final = {
    "dead-letter resubmit": MovingCommand(
        _dead,
        (
            Step(
                _given("dead-letter", "resubmit", "source", *MEANT, *WAIT),
                at("source", RED) + _BLUE_DEAD,
                (19_000, 25_000),
                in_hand=4 * TOGETHER,
            ),
        ),
    ),
    "dead-letter resubmit --to, undo": MovingCommand(
        _dead,
        (
            Step(
                _given(
                    *("dead-letter", "resubmit", "source", "--to", "other", *MEANT, *WAIT),
                    undo=True,
                ),
                at("other", RED) + _BLUE_DEAD,
                (19_000, 25_000),
                _is_written_to_undo,
            ),
            Step(_undo, at(f"other{DEAD}", RED) + _BLUE_DEAD, (3_000, 20_000)),
        ),
    ),
    "dead-letter resubmit --to one subscription": MovingCommand(
        _dead_at_subscription,
        (
            Step(
                _given("dead-letter", "resubmit", AUDIT, "--to", AUDIT, *MEANT, *WAIT),
                at(AUDIT, RED) + at(f"{AUDIT}{DEAD}", BLUE) + at(PATHS[3], RED + BLUE),
                (19_000, 25_000),
            ),
        ),
    ),
    "dead-letter purge, undo": MovingCommand(
        _dead,
        (
            Step(
                _given("dead-letter", "purge", "source", *MEANT, *WAIT, YES, undo=True),
                _BLUE_DEAD,
                PURGING,
                _is_written_to_undo,
            ),
            Step(
                _undo,
                at("source", RED) + _BLUE_DEAD,
                (17_500, 5_600),
                again=_undo_on,
                in_hand=TOGETHER,
            ),
        ),
    ),
    "deferred release": MovingCommand(
        _deferred,
        (
            Step(
                _given("deferred", "release", "source", *MEANT, YES),
                at("source", RED) + _BLUE_DEFERRED,
                (50_000, 60_000),
                in_hand=1,
            ),
        ),
    ),
    "deferred take, undo": MovingCommand(
        _deferred,
        (
            Step(
                _given("deferred", "take", "source", *MEANT, YES, undo=True),
                _BLUE_DEFERRED,
                (35_000, 56_000),
                _is_taken,
            ),
            Step(
                _undo,
                at("source", RED) + _BLUE_DEFERRED,
                (17_500, 5_600),
                again=_undo_on,
            ),
        ),
    ),
    "schedule move": MovingCommand(
        _scheduled,
        (
            Step(
                _given("schedule", "move", "source", *MEANT, "--to", LATER, YES),
                at("source", RED, f"scheduled {LATER}") + _BLUE_SCHEDULED,
                (70_000, 90_000),
                again=_move_on,
            ),
        ),
    ),
    "schedule cancel": MovingCommand(
        _scheduled,
        (
            Step(
                _given("schedule", "cancel", "source", *MEANT, YES),
                _BLUE_SCHEDULED,
                (16_500, 27_000),
            ),
        ),
    ),
    "export, import": MovingCommand(
        _exported,
        (
            Step(
                _given("import", "other", file="lines.jsonl"),
                at("source", RED + BLUE) + at("other", RED),
                (14_000, 3_600),
                _is_in_order,
                in_hand=TOGETHER,
            ),
        ),
    ),
    "receive --settle complete": MovingCommand(
        _active,
        (
            Step(
                _given("receive", "source", "--all", *WAIT, "--settle", "complete", YES),
                Counter(),
                (1_400, 20_000),
                _is_written,
            ),
        ),
    ),
    "receive --settle dead-letter": MovingCommand(
        _active,
        (
            Step(
                _given("receive", "source", "--all", *WAIT, "--settle", "dead-letter"),
                at(f"source{DEAD}", RED + BLUE),
                (1_400, 20_000),
                _is_written,
            ),
        ),
    ),
    "receive --settle defer": MovingCommand(
        _active,
        (
            Step(
                _given("receive", "source", "--all", *WAIT, "--settle", "defer"),
                at("source", RED + BLUE, "deferred"),
                (1_400, 20_000),
                _is_written,
            ),
        ),
    ),
    "send --lines": MovingCommand(
        _nothing,
        (
            Step(
                _given("send", "other", "--lines", file="lines.jsonl"),
                at("other", RED + BLUE),
                (7_600, 1_500),
                _is_in_order,
                again=_send_on,
            ),
        ),
    ),
}
"""By name."""

# -- somebody else takes what a killed purge has left


def begin_purge(stage: Stage, blow: Blow) -> None:
    """Purge dead letters until a blow that comes when some are written."""
    _dead(stage)
    words = COMMANDS["dead-letter purge, undo"].steps[0].words(stage)
    struck(stage, words, blow, dict(zip(Way, PURGING, strict=True)), least=0.8)


def receive_dead_letters(stage: Stage) -> set[str]:
    """Receive what is dead still and remove it; return the bodies."""
    words = ("receive", "source", "--dead-letter", "--all", *WAIT, "--settle", "complete", YES)
    received: set[str] = set()

    def are_all_received() -> bool:
        received.update(each["body"] for each in stage.run(*words).rows)
        return not any(path.endswith(DEAD) for path, _, _ in stage.ledger())

    eventually(are_all_received, "no message is dead")
    return received


def undo_to_the_end(stage: Stage) -> Said:
    """Undo the purge, without what is doubtful."""
    said = stage.run(*_undo(stage))
    assert said.code in (0, 3), said
    stage.fence("source")
    return said


UNTOLD: Final = (
    "dead-letter resubmit",
    "dead-letter purge, undo",
    "deferred release",
    "export, import",
)
"""Commands that send copies, and say what may be twice."""

RUNS: Final = 10
"""With each blow; the first is short enough for every check."""


def drawn(blow: Blow) -> list[ParameterSet]:
    """Return the runs with a blow: a seed, and the name of a command by chance, none twice."""
    chance = random.Random(blow.__name__)
    names = chance.sample(sorted(COMMANDS), RUNS)
    return [
        pytest.param(seed, name, marks=pytest.mark.kills if seed else pytest.mark.long)
        for seed, name in enumerate(names)
    ]


def play(stage: Stage, blow: Blow, name: str, seed: int) -> None:
    """Run a command, hurt it at instants by chance, give it again to its end, and judge."""
    stage.chance = random.Random(f"{blow.__name__} {seed}")
    COMMANDS[name].play(stage, blow)
