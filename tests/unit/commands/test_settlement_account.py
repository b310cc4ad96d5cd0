"""What is said of messages that `receive` was stopped with."""

from __future__ import annotations

import io

import pytest

from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.settlement_account import UNKNOWN, SettlementAccount
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.message import RemoteMessage


@pytest.mark.parametrize(
    ("way", "settled", "fate", "count", "said"),
    [
        ("complete", 3, "given back uncounted", None, "Give the same command to go on."),
        (
            "complete",
            3,
            "given back uncounted",
            10,
            "Give the same command with --count 7 to go on.",
        ),
        ("complete", 0, "given back uncounted", 10, "Give the same command to go on."),
        ("complete", 3, UNKNOWN, 10, "Give the same command with --count 5 to go on."),
        ("release", 3, "given back uncounted", 10, "Give the same command to go on."),
    ],
)
def test_a_count_that_counts_anew_is_what_is_left_of_it(
    way: str, settled: int, fate: str, count: int | None, said: str
) -> None:
    """The same one would have more settled than was asked for; what went back is there still."""
    err = io.StringIO()
    account = SettlementAccount(Output(stdout=io.StringIO(), stderr=err), way)
    account.received = 5
    for _ in range(settled):
        account.settled(RemoteDelivery(RemoteMessage.of(), None, b""), None)
    code = account.say(came_within_s=1, is_stopped=True, fate=fate, count=count)
    assert code == ExitCode.STOPPED
    assert err.getvalue().endswith(f". {said}\n")
