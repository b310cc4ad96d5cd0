"""Exit codes of the commands that work on a namespace."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's end says to a script."""

    DONE = 0
    FAILED = 1
    WRONG_INPUT = 2
    DIFFERENCES = 3
    STOPPED = 4
    UNREAD = 141


MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed: the namespace refused, or does not answer",
    ExitCode.WRONG_INPUT: "the options or the input are wrong; nothing was done",
    ExitCode.DIFFERENCES: "differences were found, or single messages were refused",
    ExitCode.STOPPED: "stopped half-way; the last line on standard error says how to go on",
    ExitCode.UNREAD: "who read the output has gone, as `head` does; nothing is left half-way",
}
"""Each code's meaning, as every help shows it."""
