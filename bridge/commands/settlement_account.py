"""What became of the messages of `busbridge receive`, and the sentence that says so."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from bridge.commands.errors import sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.taking_options import go_on as again

if TYPE_CHECKING:
    from bridge.remote.delivery import RemoteDelivery

LOCKED: Final = "stay locked until their locks end"
NOT_SHOWN: Final = "deleted, and not shown"
UNKNOWN: Final = "may be settled, or not"

DONE_WORDS: Final = {
    "complete": "completed",
    "abandon": "abandoned",
    "defer": "deferred",
    "dead-letter": "dead-lettered",
    "release": "given back uncounted",
    "delete": "received and deleted",
}


class SettlementAccount:
    """What became of the messages."""

    def __init__(self, output: Output, way: str) -> None:
        self._output = output
        self._way = way
        self._done: Counter[str] = Counter()
        self._failures: list[str] = []
        self.received = 0

    def settled(self, delivery: RemoteDelivery, error: BaseException | None) -> None:
        """Note the end of a settlement; an error that is no remote refusal is raised."""
        from bridge.remote.errors import RemoteError

        if error is None:
            self._done[self._way] += 1
            return
        if not isinstance(error, RemoteError):
            raise error
        doubt = " It may be settled, or not." if error.in_doubt else ""
        self._failures.append(
            f"message {delivery.message.sequence_number}: {sentence_of(error)}{doubt}"
        )

    def deleted(self, count: int) -> None:
        """Note messages that were deleted as they were received."""
        self._done["delete"] += count

    def say(
        self,
        *,
        came_within_s: float,
        is_stopped: bool,
        fate: str = "given back uncounted",
        count: int | None = None,
        go_on: str | None = None,
    ) -> int:
        """Say what was done, and return the exit code.

        Args:
            is_stopped: somebody has stopped it.
            fate: what becomes of those that are not settled.
            count: how many were to be received at most; `None` for all.
            go_on: what to do when it is stopped; `None`: give the same command.
        """
        self._output.say_some("not settled", self._failures)
        done = ", ".join(f"{count:,} {DONE_WORDS[way]}" for way, count in self._done.items())
        if is_stopped:
            rest = self.received - self._done.total() - len(self._failures)
            given_back = f"; {rest:,} {fate}" if rest else ""
            gone = self._done.total() - self._done["release"]
            gone += rest if fate in (NOT_SHOWN, UNKNOWN) else 0
            way = again(count, gone, option="--count") if go_on is None else f" {go_on}"
            text = f"Stopped: {done or 'none settled'}{given_back}.{way}"
            self._output.say(text.rstrip())
            return ExitCode.STOPPED
        if not self.received:
            self._output.say(f"No message came within {came_within_s:g} s.")
        elif done:
            self._output.say(f"{done[0].upper()}{done[1:]}.")
        return ExitCode.DIFFERENCES if self._failures else ExitCode.DONE
