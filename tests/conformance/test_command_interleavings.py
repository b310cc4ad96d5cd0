"""`send` and `receive` on a namespace that does anything: what they say of each message is true."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bridge.background.retry import retry
from bridge.cli.main import parser_of
from bridge.commands import receive, running, send
from bridge.commands.errors import CommandError
from bridge.commands.output import Output
from bridge.model.entity import Queue
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.wire.amqp10.message import BATCH_FORMAT, batch_messages
from bridge.wire.amqp10.performatives import Accepted, Released
from tests.acceptance.busbridge import Said
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.door import connection_string
from tests.conformance.remote import WAIT_S, Waits, remote
from tests.conformance.served import gateway
from tests.fixtures.examples import examples
from tests.fixtures.scripted_server import ScriptedServer, rejected, scripted_server
from tests.fixtures.tap import (
    BUSY,
    BUSY_TEXT,
    Play,
    busy,
    close,
    cut,
    detach,
    refuse,
    tap,
    timed_out,
)
from tests.fixtures.tapped_connection import Moment

PAUSE = "50009: Please wait 9 seconds and try again."
ROUNDS_MAX = 30
"""A command that is given again so often has got nowhere."""


@contextmanager
def place(port: int, *, is_patient: bool = True) -> Iterator[pytest.MonkeyPatch]:
    """The namespace of a port, and pauses that do not last.

    Args:
        is_patient: whether the client tries again by itself; else the command has to.
    """
    waits = Waits()
    patience = waits.patience if is_patient else replace(waits.patience, total_s=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLACE", connection_string(port))
        patch.setattr("bridge.remote.namespace.Patience", lambda: patience)
        patch.setattr("bridge.background.retry.retry", partial(retry, sleep=waits))
        yield patch


class Reader(StringIO):
    """An output that somebody reads up to so many lines; `None`: all of them."""

    def __init__(self, lines_max: int | None) -> None:
        super().__init__()
        self._lines_max = lines_max

    def write(self, text: str) -> int:
        """Write, while somebody reads."""
        if self._lines_max is not None and self.getvalue().count("\n") >= self._lines_max:
            raise BrokenPipeError
        return super().write(text)


async def run(*words: str, lines_max: int | None = None) -> Said:
    """Run a command in this loop; signals reach it as they reach a process."""
    parser = parser_of((words[0],))
    arguments = parser.parse_args([*words, "--connection-string-variable", "PLACE"])
    out, err = Reader(lines_max), StringIO()
    output = Output(as_json=True, is_confirmed=True, stdout=out, stderr=err)
    work = {"send": send.run, "receive": receive.run}[words[0]]

    async def command(arguments: argparse.Namespace, output: Output) -> int:
        return await work(arguments, output)

    try:
        async with asyncio.timeout(WAIT_S):
            code = await running._run(command, arguments, output, "Listen")
    except CommandError as error:
        err.write(f"{error}\n")
        code = error.code
    return Said(code, out.getvalue(), err.getvalue())


def interrupt() -> None:
    """What Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


# -- send

FATES = (
    *("accept", "accept", "accept", "refuse", "refuse", "refuse", "release", "busy", "interrupt"),
    *(
        "interrupt soon",
        "interrupt twice",
        "take and interrupt twice",
        "detach",
        "busy detach",
        "busy close",
        "refuse and detach",
        "cut",
    ),
    *("take and detach", "take and busy close", "take and refuse and detach", "take and cut"),
)
"""What the server does with the next transfer; "take": it accepts it, and nobody hears of that."""

SENT = re.compile(r"Sent ([0-9,]+) messages?")
REFUSED = re.compile(r"refused: \S+:(\d+): ")


SOON_S = 0.005
"""Within the pause between two batches of a send with a rate."""


def outcome_of(server: ScriptedServer, fate: str, later: list[asyncio.TimerHandle]) -> Any:
    """Return an outcome of the scripted server's; `later` gets what it does after its answer."""
    takes, what = fate.startswith("take"), fate.removeprefix("take and ")

    def end(connection: Any, event: Any) -> Any:
        if takes:
            server.messages.append(event.payload)
            server.formats.append(event.message_format)
        match what:
            case "interrupt":
                interrupt()
                return Accepted()
            case "interrupt soon":
                later.append(asyncio.get_running_loop().call_later(SOON_S, interrupt))
                return Accepted()
            case "interrupt twice":  # it waits for an answer that does not come
                interrupt()
                interrupt()
            case "detach":
                event.link.detach("amqp:link:detach-forced", "idle")
            case "busy detach":
                event.link.detach(BUSY, PAUSE)
            case "refuse and detach":
                event.link.detach("amqp:not-allowed", "refused")
            case "busy close":
                connection.endpoint.close(BUSY, PAUSE)
            case "cut":
                connection.transport.abort()
        return None

    return {
        "accept": Accepted(),
        "refuse": rejected("amqp:not-allowed", "refused"),
        "release": Released(),
        "busy": rejected(BUSY, PAUSE),
    }.get(fate, end)


def numbers_in(server: ScriptedServer) -> list[int]:
    """Return the numbers of all messages that are there."""
    found = []
    for payload, message_format in zip(server.messages, server.formats, strict=True):
        parts = list(batch_messages(payload)) if message_format == BATCH_FORMAT else [payload]
        found += [int(RemoteMessage.read(each).data) for each in parts]
    return found


def case(
    *fates: str,
    sessions: str = "AAA",
    is_again: bool = True,
    is_patient: bool = True,
    rate: int | None = None,
) -> example:
    """Return a case that is always tried."""
    again = [is_again] * ROUNDS_MAX
    return example(
        fates=[*fates], sessions=[*sessions], again=again, is_patient=is_patient, rate=rate
    )


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    fates=st.lists(st.sampled_from(FATES), max_size=14).filter(
        lambda each: " ".join(each).count("interrupt") <= 1
    ),
    sessions=st.lists(st.sampled_from("AAB"), min_size=1, max_size=10),
    again=st.lists(st.booleans(), min_size=ROUNDS_MAX, max_size=ROUNDS_MAX),
    is_patient=st.booleans(),
    rate=st.sampled_from([None, None, 40]),
)
@case("refuse", "accept", "take and cut")
@case("accept", "interrupt", sessions="ABA", is_again=False)
@case("refuse", "refuse", "cut")
@case("refuse", "accept", "refuse", "interrupt", sessions="AAAA")
@case("take and refuse and detach", sessions="AA", is_again=False)
@case("take and busy close", sessions="AB", is_again=False, is_patient=False)
@case("accept", "busy", "busy", sessions="AB", is_patient=False)
@case("interrupt soon", sessions="AAAABB", rate=40)
@case("accept", "take and interrupt twice", sessions="ABA")
@case("accept", "interrupt twice", sessions="ABA", is_again=False)
async def test_who_goes_on_as_send_says_has_sent_each_message_that_is_not_in_doubt_once(
    fates: list[str], sessions: list[str], again: list[bool], is_patient: bool, rate: int | None
) -> None:
    """A message is there once, or named as refused and not there, or in doubt.

    One in doubt is there at most once more for each time that it is sent again, and is missing at
    most where its user chose to leave it out. What was never in doubt is in order. As many are sent
    as it says, but for those of which it says that it does not know, and none is named that the
    server has not refused.
    """
    count, skip = len(sessions), 0
    refused: set[int] = set()
    doubts: Counter[int] = Counter()
    left_out: set[int] = set()
    later: list[asyncio.TimerHandle] = []
    pace = () if rate is None else ("--rate", str(rate))
    async with scripted_server() as server:
        with place(server.port, is_patient=is_patient), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "lines"
            file.write_text(
                "".join(
                    f"{json.dumps({'body': str(at), 'session_id': each})}\n"
                    for at, each in enumerate(sessions, 1)
                )
            )
            server.outcomes = [outcome_of(server, each, later) for each in fates]
            for is_again in again:
                before = numbers_in(server)
                said = await run("send", "q", "--lines", str(file), "--skip", str(skip), *pace)
                for each in later:
                    each.cancel()
                there = numbers_in(server)[len(before) :]
                refused |= {int(each) for each in REFUSED.findall(said.err)}
                skips = [int(each) for each in re.findall(r"--skip (\d+)", said.err)]
                if said.code == 1:
                    assert not there, said
                    continue
                found = SENT.search(said.err)
                assert found, said
                sure = int(found[1].replace(",", ""))
                assert sure <= len(there) <= sure + (skips[-1] - skips[0] if skips else 0), said
                if said.code in (0, 3):
                    assert not skips
                    assert (said.code == 3) is bool(REFUSED.search(said.err)), said
                    break
                assert said.code == 4, said
                assert len(skips) == 1 + ("may have been sent" in said.err), said
                doubtful = range(skips[0] + 1, skips[-1] + 1)
                doubts.update(doubtful)
                left_out -= set(doubtful)
                if not is_again:
                    left_out |= set(doubtful)
                skip = skips[0] if is_again else skips[-1]
            else:
                raise AssertionError("it got nowhere")
        done = fates[: len(fates) - len(server.outcomes)]
    found_numbers = numbers_in(server)
    there_of = Counter(found_numbers)
    for number in range(1, count + 1):
        if number in doubts:
            assert there_of[number] <= doubts[number] + (number not in left_out)
            assert there_of[number] >= 1 or number in left_out or number in refused
        else:
            assert there_of[number] == (number not in refused), number
    assert len(refused) <= done.count("refuse")
    sure_ones = [number for number in found_numbers if number not in doubts]
    assert sure_ones == sorted(sure_ones)


# -- receive


def interrupted(moment: Moment) -> bool:
    """Press Ctrl-C, and do as the bridge does."""
    interrupt()
    return True


PLAYS: dict[str, Play] = {
    "busy": busy,
    "idle": detach(),
    "busy detach": detach(BUSY, BUSY_TEXT),
    "busy close": close(BUSY, BUSY_TEXT),
    "cut": cut,
    "timed out": timed_out,
    "lost": refuse("com.microsoft:message-lock-lost", "The lock has ended."),
    "interrupt": interrupted,
}
MOMENTS = ("attach", "deliver", "settle", "settled")
UNTRUE = {("settled", "busy"), ("settled", "lost")}
"""Nobody refuses what has been done."""

HAPPENINGS = st.tuples(st.sampled_from(MOMENTS), st.sampled_from([*PLAYS])).filter(
    lambda each: each not in UNTRUE
)


DONE_OF = {
    "complete": "completed",
    "abandon": "abandoned",
    "dead-letter": "dead-lettered",
    "release": "given back uncounted",
    "delete": "received and deleted",
}
"""What `receive` says of messages that are settled."""


async def received_of(namespace: RemoteNamespace, count: int) -> set[int]:
    """Receive so many messages of the queue, and return their numbers."""
    found: set[int] = set()
    receiver = await namespace.receiver("q")
    while len(found) < count:
        come = await receiver.receive(count, WAIT_S)
        assert come, f"{count} are there, and free are {found}"
        found |= {int(each.message.data) for each in come}
    return found


def counted(words: str, text: str) -> int:
    """Return the sum of the numbers that stand before words."""
    return sum(int(each) for each in re.findall(rf"(\d+) {words}", text))


def received(
    way: str, *happenings: tuple[str, str], lines_max: int | None = None, round_: int = 100
) -> example:
    """Return a case that is always tried, of five messages."""
    return example(way=way, count=5, happenings=[*happenings], lines_max=lines_max, round_=round_)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    way=st.sampled_from([*DONE_OF]),
    count=st.integers(1, 8),
    happenings=st.lists(HAPPENINGS, max_size=4),
    lines_max=st.none() | st.integers(0, 8),
    round_=st.sampled_from([1, 3, 100]),
)
@received("complete", ("settled", "cut"))
@received("complete", ("settle", "lost"))
@received("complete", ("settle", "interrupt"), round_=3)
@received("complete", lines_max=2, round_=3)
@received("delete", lines_max=2)
@received("delete", ("deliver", "interrupt"))
@received("delete", ("deliver", "interrupt"), ("deliver", "interrupt"))
@received("complete", ("settle", "interrupt"), ("settle", "interrupt"))
@received("release", ("deliver", "interrupt"))
@received("abandon", round_=3)
@received("abandon", ("deliver", "interrupt"), round_=3)
async def test_what_receive_says_of_its_messages_is_what_has_become_of_them(
    way: str, count: int, happenings: list[tuple[Any, str]], lines_max: int | None, round_: int
) -> None:
    """No message is gone that was not shown, none is there twice, and the sums are right.

    As many are settled as it says, but for those of which it says that it does not know. Only what
    is received and deleted can be lost, and then by a fault of the way; an interrupt is none.
    """
    memory = MemoryNamespace(Queue(name="q", lock_duration_ms=300_000, max_delivery_count=100))
    settlement = ("--delete",) if way == "delete" else ("--settle", way)
    is_calm = not happenings and lines_max is None
    has_faults = any(what != "interrupt" for _, what in happenings)
    until = ("--count", str(count), "--wait", "120") if is_calm else ("--all", "--wait", "0.2")
    async with gateway(namespace=memory) as (_, port), tap(port) as azure:
        async with remote(port) as namespace:
            sender = await namespace.sender("q")
            for number in range(count):
                await sender.send([RemoteMessage.of(data=str(number).encode())])
        for moment, what in happenings:
            azure.when(moment, PLAYS[what], address="q")
        with place(azure.port) as patch:
            patch.setattr("bridge.commands.receive.ROUND", round_)
            said = await run("receive", "q", *until, *settlement, lines_max=lines_max)
        async with remote(port) as namespace:
            left, dead = [
                list(await (await namespace.management(path)).peek(1, 250))
                for path in ("q", "q/$DeadLetterQueue")
            ]
            free = set() if has_faults else await received_of(namespace, len(left))
    there = Counter(int(each.data) for each in [*left, *dead])
    lines = [json.loads(line) for line in said.out.splitlines()]
    shown = {int(line["body"]) for line in lines}
    gone = set(range(count)) - set(there)
    assert set(there.values()) <= {1}
    assert has_faults or free == {int(each.data) for each in left}  # nothing stays locked
    settled = {
        "complete": gone,
        "delete": gone,
        "dead-letter": {int(each.data) for each in dead},
        "abandon": {int(each.data) for each in left if each.delivery_count},
        "release": set(),
    }[way]
    if way != "dead-letter":
        assert not dead
    if way not in ("complete", "delete"):
        assert not gone
    if way != "delete":
        assert settled <= shown
    if "interrupted;" in said.err:  # the third signal
        assert said.code == 4
        return
    sure, doubts = counted(DONE_OF[way], said.err), said.err.count("It may be settled, or not.")
    doubts += counted("may be settled, or not", said.err)
    failures = said.err.count("not settled: ")
    is_stopped = "Stopped: " in said.err
    if way not in ("delete", "release"):
        assert sure <= len(settled) <= sure + doubts, said
    if way == "delete":
        assert sure == len(lines), said
        lost = len(gone) - sure - counted("deleted, and not shown", said.err)
        assert lost == 0 or has_faults or "What came last may be deleted" in said.err, said
    elif lines_max is None:
        fates = ("given back uncounted", "stay locked until", "may be settled, or not")
        rest = sum(counted(each, said.err) for each in fates if each != DONE_OF[way])
        assert sure + failures + rest == len(lines), said
    assert (said.code == 4) is is_stopped, said
    if not is_stopped and said.code != 1:
        assert said.code == (3 if failures else 0), said
    if is_calm:
        assert said.code == 0
        assert len(shown) == count
        assert all(each.delivery_count == (way == "abandon") for each in left)
