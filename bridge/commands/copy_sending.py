"""Sends copies of the messages of a file, in order, and notes after each batch how far it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.taking_options import messages
from bridge.relay.machine.effects import Accepted, Failed, Refused
from bridge.relay.running.outlet import OVERHEAD, Outlet
from bridge.remote.message import RemoteMessage

OUTAGE_S: Final = 60.0
"""How long a target may be away."""

WAIT_S: Final = 1.0
"""Between two attempts, unless the target asks for more."""

BATCH: Final = 250
"""Messages of a batch."""


@dataclass(frozen=True, slots=True)
class CopyToSend:
    """A message that is sent.

    Attributes:
        number, enqueued_ms: what makes it the same one when it is sent again.
        line: its line in the file, from 1.
    """

    message: RemoteMessage
    number: int
    enqueued_ms: int
    line: int


class CopySending:
    """Collects copies in batches and sends them, one batch after the other.

    Args:
        note: is told the last line that is done with, after each batch.
        asked: set when somebody stops it.
        line: the line behind which it goes on.
        outage_s: how long the target may be away.

    Attributes:
        sent: how many the target has confirmed.
        refused: those that were refused alone, in words.
        stopped: why no more is sent; "" while it is.
        in_doubt: how many of a batch may have been sent, or not.
        line: the last line that is done with.

    A batch that may have been sent is sent again only where the target knows what comes twice.
    """

    def __init__(
        self,
        outlet: Outlet,
        note: Callable[[int], None],
        asked: asyncio.Event,
        line: int,
        outage_s: float = OUTAGE_S,
    ) -> None:
        self._outlet = outlet
        self._note = note
        self._asked = asked
        self._outage_s = outage_s
        self._batch: list[CopyToSend] = []
        self._bytes = 0
        self._passed = line
        self.line = line
        self.sent = 0
        self.in_doubt = 0
        self.refused: list[str] = []
        self.stopped = ""

    async def add(self, copy: CopyToSend) -> None:
        """Add a copy; what is in front of it may be sent."""
        size = copy.message.size_bytes + OVERHEAD
        if self._batch and (
            len(self._batch) >= BATCH
            or self._bytes + size > self._outlet.batch_bytes_max
            or _group(copy) != _group(self._batch[0])
        ):
            await self.flush()
            if self.stopped:
                return
        self._batch.append(copy)
        self._bytes += size
        self._passed = copy.line

    def refuse(self, line: int, text: str) -> None:
        """Note a line that cannot be sent."""
        self.refused.append(f"line {line}: {text}")
        self._passed = line

    def skip(self, line: int) -> None:
        """Note a line of which nothing is to be sent."""
        self._passed = line

    async def flush(self) -> None:
        """Send what was added, and note how far it is."""
        batch, self._batch, self._bytes = self._batch, [], 0
        if self.stopped or (self._asked.is_set() and batch):
            self.stopped = self.stopped or "Stopped"
            return
        if batch and not await self._send(batch):
            return
        await self._done(self._passed)

    async def _done(self, line: int) -> None:
        if line > self.line:
            await asyncio.to_thread(self._note, line)
            self.line = line

    async def _send(self, batch: Sequence[CopyToSend]) -> bool:
        """Send a batch; where it is refused, each of it alone. False: it has to stop."""
        outcome = await self._answer(batch)
        match outcome:
            case Accepted():
                self.sent += len(batch)
                return True
            case Refused() if len(batch) > 1:
                for each in batch:
                    if not await self._send([each]):
                        return False
                    await self._done(each.line)
                return True
            case Refused(reason, description):
                self.refused.append(f"line {batch[0].line}: {description or reason}")
                return True
            case Failed():
                self.stopped = f"Stopped, as the target does not answer: {outcome.cause}"
                self.in_doubt = len(batch) if outcome.is_in_doubt else 0
        return False

    async def _answer(self, batch: Sequence[CopyToSend]) -> Accepted | Refused | Failed:
        """Send a batch until there is an answer, the target is away for too long, or asked to."""
        until_s = time.monotonic() + self._outage_s
        in_doubt = False
        while True:
            outcome = await self._outlet.send(
                [(each.message, each.number, each.enqueued_ms) for each in batch]
            )
            if not isinstance(outcome, Failed):
                return outcome
            in_doubt = in_doubt or outcome.is_in_doubt
            is_over = time.monotonic() >= until_s or self._asked.is_set()
            if (
                is_over
                or outcome.is_of_rights
                or (outcome.is_in_doubt and not self._outlet.knows_source)
            ):
                return Failed(outcome.cause, 0, outcome.is_of_rights, in_doubt)
            wait_s = max(WAIT_S, outcome.pause_ms / 1000)
            try:
                await asyncio.wait_for(self._asked.wait(), wait_s)
            except TimeoutError:
                continue


def _group(copy: CopyToSend) -> tuple[str | None, str | None]:
    """Return what the messages of one batch have in common."""
    return copy.message.session_id, copy.message.partition_key


def say_sent(output: Output, sending: CopySending, text: str) -> int:
    """Say what was sent, and return the exit code.

    Args:
        text: what was done, as "sent to orders".
    """
    output.say_some("not sent", sending.refused)
    if not output.is_table:
        output.record(
            {
                "sent": sending.sent,
                "refused": len(sending.refused),
                "in_doubt": sending.in_doubt,
                "line": sending.line,
                "end": "stopped" if sending.stopped else "done",
            }
        )
    done = f"{messages(sending.sent)} {text}"
    if not sending.stopped:
        output.say(f"{done}.")
        return ExitCode.DIFFERENCES if sending.refused else ExitCode.DONE
    if sending.in_doubt:
        output.say(
            f"{messages(sending.in_doubt)} more may have been {text.partition(' ')[0]}, or not; "
            "the same command sends them again: a bridge with the right Manage numbers none twice."
        )
    output.say(f"{sending.stopped.rstrip('.')}. {done}. Give the same command to go on.")
    return ExitCode.STOPPED
