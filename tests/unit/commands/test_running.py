"""How a command ends: by itself, by an error, by signals, or because nobody reads its output."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bridge.commands.errors import CommandError, WrongInput
from bridge.commands.output import Output
from bridge.commands.running import run_command
from bridge.model.errors import ArgumentError
from bridge.remote.credentials import NO_TOKEN
from bridge.remote.errors import (
    CONNECTION_FORCED,
    UNAUTHORIZED,
    RemoteConnectionLost,
    RemoteRefused,
    RemoteUnauthorized,
)

Work = Callable[[Output], Awaitable[int]]


def run(work: Work, *, namespace: str | None = "prod") -> int:
    """Run a command that does this, and return its exit code."""

    async def command(arguments: argparse.Namespace, output: Output) -> int:
        return await work(output)

    arguments = argparse.Namespace(json=True, namespace=namespace, connection_string_variable=None)
    return run_command(command, arguments, "Listen on the entity")


def interrupt() -> None:
    """What Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (WrongInput("No."), 2, "busbridge: No.\n"),
        (CommandError("No."), 1, "busbridge: No.\n"),
        (ArgumentError("The name."), 2, "busbridge: The name.\n"),
        (IsADirectoryError(21, "Is a directory", "a/b"), 1, "busbridge: a/b: Is a directory.\n"),
        (RemoteRefused("amqp:not-allowed", "Not so"), 1, "busbridge: Not so.\n"),
        (RemoteRefused("amqp:not-allowed"), 1, "busbridge: amqp:not-allowed.\n"),
        (RemoteConnectionLost(CONNECTION_FORCED, "Gone."), 1, "busbridge: Gone.\n"),
        (
            RemoteConnectionLost(CONNECTION_FORCED, "Gone", in_doubt=True),
            1,
            "busbridge: Gone. It may have been done, or not.\n",
        ),
        (
            RemoteUnauthorized(UNAUTHORIZED, "InvalidSignature: who is it"),
            1,
            "busbridge: InvalidSignature: who is it. The key, or the name of its rule, is wrong: "
            "look at the connection string.\n",
        ),
        (
            RemoteUnauthorized(UNAUTHORIZED, f"{NO_TOKEN}: nobody is logged in"),
            1,
            f"busbridge: {NO_TOKEN}: nobody is logged in. Log in first, as by `az login`, or set "
            "the variables that azure-identity names.\n",
        ),
        (
            RemoteUnauthorized(UNAUTHORIZED, "No Listen here"),
            1,
            "busbridge: No Listen here. This command needs the right Listen on the entity.\n",
        ),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    """A refused login names the right that is needed, or what else helps."""

    async def fail(output: Output) -> int:
        raise error

    assert run(fail) == code
    assert capsys.readouterr() == ("", said)


def test_where_no_namespace_was_named_and_no_bridge_answers_that_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """With both ways on."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BUSBRIDGE_NAMESPACE", raising=False)

    async def fail(output: Output) -> int:
        raise RemoteConnectionLost(CONNECTION_FORCED, "Gone.")

    assert run(fail, namespace=None) == 1
    said = capsys.readouterr().err
    assert "busbridge serve" in said
    assert "busbridge profile add" in said


def test_an_interrupted_command_says_that_it_may_be_half_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With exit code 4, and what it opened is closed first."""
    ended = []

    async def wait(output: Output) -> int:
        interrupt()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return 0

    assert run(wait) == 4
    assert ended == [True]
    said = capsys.readouterr()
    assert said.out == ""
    assert "interrupted" in said.err


def test_a_command_may_finish_what_it_does_before_it_stops(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first signal is an event; the command's own exit code counts."""

    async def work(output: Output) -> int:
        with output.interruption.deferred() as asked:
            interrupt()
            await asked.wait()
            output.record({"done": 7})
            return 4

    assert run(work) == 4
    said = capsys.readouterr()
    assert said.out == '{"done": 7}\n'
    assert "interrupt again to stop at once" in said.err


def test_the_second_signal_stops_a_command_that_does_not_finish() -> None:
    """Whatever it waits for."""

    async def work(output: Output) -> int:
        with output.interruption.deferred() as asked:
            interrupt()
            await asked.wait()
            interrupt()
            await asyncio.Event().wait()
        return 0

    assert run(work) == 4


def test_a_deferred_part_of_a_deferred_part_has_its_own_signal() -> None:
    """As what a command must take away at its end, which a signal before has begun."""
    heard = []

    async def work(output: Output) -> int:
        with output.interruption.deferred() as outer:
            with output.interruption.deferred() as inner:
                interrupt()
                await inner.wait()
                heard.append(outer.is_set())
            interrupt()
            await outer.wait()
            with output.interruption.deferred() as last:
                interrupt()
                await last.wait()
            return 3

    assert run(work) == 3
    assert heard == [False]


def test_after_the_deferring_part_a_signal_ends_the_command() -> None:
    """Each part begins anew."""

    async def work(output: Output) -> int:
        with output.interruption.deferred():
            pass
        interrupt()
        await asyncio.Event().wait()
        return 0

    assert run(work) == 4


ENDLESS = """
import argparse
from bridge.commands.running import run_command
async def run(arguments, output):
    while True:
        output.record({"row": 1})
raise SystemExit(run_command(run, argparse.Namespace(json=False), "none"))
"""


def test_a_reader_that_goes_away_ends_the_command_without_a_word() -> None:
    """As `| head -1` does."""
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == '{"row": 1}\n'
        process.stdout.close()
        assert process.wait(timeout=120) == 141
        assert process.stderr.read() == ""


def test_output_that_cannot_be_written_is_one_sentence() -> None:
    """As on a disk that is full."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", ENDLESS],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1,
        "busbridge: the output: No space left on device.\n",
    )
