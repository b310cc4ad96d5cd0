"""What is said at the end of a command that takes messages."""

from __future__ import annotations

import io
import re

import pytest

from bridge.cli.main import main
from bridge.commands.errors import CommandError
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.taking_options import say_ended
from bridge.operations.taking_account import TakingAccount
from bridge.operations.taking_effects import TakingEnd, TakingEnded


def said(
    end: TakingEnd, account: TakingAccount, later: int = 0, limit: int | None = None
) -> tuple[int, str]:
    """Return the exit code, and what people read."""
    err = io.StringIO()
    output = Output(stdout=io.StringIO(), stderr=err)
    code = say_ended(
        output, TakingEnded(end, "the link has ended"), account,
        done="sent to orders", entity="orders/$deadletterqueue", last_number=7, later=later,
        limit=limit,
    )  # fmt: skip
    return code, err.getvalue()


def test_a_target_that_was_away_from_the_first_has_had_nothing_done() -> None:
    """An error: no message was touched."""
    with pytest.raises(CommandError, match="Nothing was done"):
        said(TakingEnd.AWAY, TakingAccount(given_back=3))


@pytest.mark.parametrize(
    ("account", "text"),
    [
        (TakingAccount(in_doubt=3), "3 messages of orders/$deadletterqueue may have been moved"),
        (TakingAccount(left_locked=3), "3 messages of orders/$deadletterqueue stay locked"),
    ],
)
def test_nothing_was_done_only_where_that_is_sure(account: TakingAccount, text: str) -> None:
    """The first batch was sent, and no answer came: its copies may be at the target."""
    code, err = said(TakingEnd.AWAY, account)
    assert code == ExitCode.STOPPED
    assert text in err
    assert "Nothing was done" not in err


def test_with_messages_that_came_since_the_same_command_is_what_helps() -> None:
    """Given again it takes them: a higher --hold would only have it hold more."""
    code, err = said(TakingEnd.HELD, TakingAccount(), later=2)
    assert code == ExitCode.STOPPED
    assert "2 messages of orders/$deadletterqueue, enqueued since the command began" in err
    assert err.endswith("Give the same command to go on.\n")


@pytest.mark.parametrize(
    ("end", "limit", "way"),
    [
        (TakingEnd.STOPPED, None, "Give the same command to go on.\n"),
        (TakingEnd.STOPPED, 10, "Give the same command with --limit 7 to go on.\n"),
        (TakingEnd.HELD, 10, "Give a higher --hold with --limit 7 to go on.\n"),
        (TakingEnd.STOPPED, 3, "3 messages of orders/$deadletterqueue sent to orders.\n"),
    ],
)
def test_a_limit_that_counts_anew_is_what_is_left_of_it(
    end: TakingEnd, limit: int | None, way: str
) -> None:
    """The same one would have more taken than was asked for."""
    code, err = said(end, TakingAccount(taken=3), limit=limit)
    assert code == ExitCode.STOPPED
    assert err.endswith(way)


@pytest.mark.parametrize(("wait", "hold"), [("0", 1), ("nan", 1), ("-1.0", 1), ("5.0", -1)])
def test_a_wait_in_which_nothing_can_come_is_refused(
    capsys: pytest.CaptureFixture[str], wait: str, hold: int
) -> None:
    """An undo would say of each copy that it is not there; none was received."""
    assert main(["undo", "none", f"--wait={wait}", f"--hold={hold}"]) == 2
    assert re.search(r"--(wait is above|hold is not below) 0", capsys.readouterr().err)
