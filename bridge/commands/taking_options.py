"""Options of commands that take messages out of an entity, and what is said at their end."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.commands.errors import CommandError, WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.operations.count_text import counted
from bridge.operations.taking_rules import HOLD, WINDOW

if TYPE_CHECKING:
    from bridge.commands.undo_writing import UndoFile
    from bridge.operations.taking_account import TakingAccount
    from bridge.operations.taking_effects import TakingEnded
    from bridge.operations.taking_rules import TakingRules
    from bridge.operations.undo_file import UndoHead

WAIT_S: Final = 5.0
RATED_S: Final = 5
"""With a rate: for so many seconds messages are in hand at most."""


def add_taking(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how messages are taken."""
    group = parser.add_argument_group("how")
    group.add_argument("--rate", type=float, metavar="N", help="N messages a second at most")
    group.add_argument(
        "--dry-run", action="store_true", help="show which messages it would be; nothing is done"
    )
    group.add_argument(
        "--hold", type=int, default=HOLD, metavar="N",
        help="messages that are not meant and stand in front are locked until the end, N at most, "
        "but at a bridge that locks by number; "
        f"all go back uncounted (default: {HOLD:,})",
    )  # fmt: skip
    group.add_argument(
        "--undo", type=Path, metavar="FILE",
        help="write each message to this file before it is settled: one line each, readable by "
        "its owner alone, with bodies; the same command goes on with a file that is there",
    )  # fmt: skip
    group.add_argument(
        "--wait", type=float, default=WAIT_S, metavar="SECONDS",
        help=f"there are no more when none comes for so long (default: {WAIT_S:g})",
    )  # fmt: skip


def check_taking(arguments: argparse.Namespace) -> None:
    """Raise WrongInput for an option that cannot be used."""
    if arguments.hold < 0:
        raise WrongInput("--hold is not below 0.")


def rules_of(arguments: argparse.Namespace, **others: Any) -> TakingRules:
    """Return the rules of the options."""
    from bridge.operations.taking_rules import TakingRules

    rate = arguments.rate
    window = WINDOW if rate is None else min(WINDOW, ceil(rate * RATED_S))
    given = {"window": window, "limit": arguments.limit, "hold": arguments.hold} | others
    return TakingRules(rate_per_s=rate, is_written=arguments.undo is not None, **given)


def undo_of(path: Path | None, head: UndoHead) -> AbstractContextManager[UndoFile | None]:
    """Return the undo file of `--undo`, opened; `None` without one.

    Raises:
        WrongInput: it cannot be used.
    """
    if path is None:
        return nullcontext(None)
    from bridge.commands.undo_writing import UndoFile

    return UndoFile(path, head)


def say_ended(
    output: Output,
    ended: TakingEnded,
    account: TakingAccount,
    *,
    done: str,
    entity: str,
    last_number: int,
    later: int,
    limit: int | None = None,
    rest: Sequence[str] = (),
) -> int:
    """Say what was done, and return the exit code; raise CommandError if that is nothing.

    Args:
        done: what has become of those that were taken, such as "moved to orders".
        entity: where they came from.
        last_number: the number of the last message that was looked at.
        later: how many were enqueued since the command began.
        limit: how many were to be taken at most; `None` for all.
        rest: what else is to be said of messages that are meant and were not taken.
    """
    from bridge.operations.taking_effects import TakingEnd

    output.say_some("not taken", [f"message {number}: {text}" for number, text in account.refused])
    if not output.is_table:
        output.record(_record(ended, account) | {"later": later})
    text = f"{messages(account.taken)} of {entity} {done}"
    is_stopped = ended.end is not TakingEnd.DONE
    is_nothing = not account.taken and not account.in_doubt and not account.left_locked
    if is_stopped and is_nothing and ended.end in (TakingEnd.AWAY, TakingEnd.LOST):
        raise CommandError(f"{ended.cause.rstrip('.')}. Nothing was done.")
    for sentence in (*_rest(account, entity, later), *rest):
        output.say(sentence)
    if not is_stopped:
        output.say(f"{text}.")
        if account.not_completed:
            return ExitCode.STOPPED
        return ExitCode.DIFFERENCES if account.refused or rest else ExitCode.DONE
    why = {
        TakingEnd.STOPPED: "Stopped",
        TakingEnd.HELD: (
            "Stopped: more messages that are not meant stand in front than --hold allows; the "
            f"last one that was looked at is {last_number}"
        ),
        TakingEnd.AWAY: f"Stopped, as the target does not answer: {ended.cause.rstrip('.')}",
        TakingEnd.LOST: f"Stopped, as the source does not answer: {ended.cause.rstrip('.')}",
        TakingEnd.UNWRITTEN: f"Stopped, as the undo file cannot be written: {ended.cause}",
    }[ended.end]
    is_held = ended.end is TakingEnd.HELD and not later
    way = "a higher --hold" if is_held else "the same command"
    output.say(f"{why}. {text}.{go_on(limit, account.taken, way)}")
    return ExitCode.STOPPED


def go_on(
    limit: int | None, done: int, way: str = "the same command", option: str = "--limit"
) -> str:
    """Return how to go on with a command that has stopped, behind a space; "" when it has all.

    Args:
        limit: what `option` has, which counts anew in each run; `None`: it is not given.
        done: how many of these are done.
        way: what to give, besides the limit that is left.
    """
    if limit is None or not done:
        return f" Give {way} to go on."
    return f" Give {way} with {option} {limit - done} to go on." if limit > done else ""


def _rest(account: TakingAccount, entity: str, later: int) -> list[str]:
    found = []
    if later:
        found.append(
            f"{messages(later)} of {entity}, enqueued since the command began by this machine's "
            "clock, stay there: the same command takes them."
        )
    if account.left_locked:
        found.append(
            f"{messages(account.left_locked)} of {entity} stay locked until their locks end."
        )
    if account.in_doubt:
        found.append(
            f"{messages(account.in_doubt)} of {entity} may have been moved, and are there still."
        )
    if account.not_completed:
        found.append(
            f"Of {messages(account.not_completed)} it is not sure that they were removed from "
            f"{entity}: they may come again when their locks end."
        )
    return found


def _record(ended: TakingEnded, account: TakingAccount) -> dict[str, object]:
    return {
        "end": ended.end.value,
        "looked_at": account.looked_at,
        "taken": account.taken,
        "removed": account.completed,
        "not_surely_removed": account.not_completed,
        "given_back": account.given_back,
        "left_locked": account.left_locked,
        "in_doubt": account.in_doubt,
        "refused": [{"number": number, "why": text} for number, text in account.refused],
    }


def messages(count: int) -> str:
    """Return a number of messages in words."""
    return counted(count, "message")
