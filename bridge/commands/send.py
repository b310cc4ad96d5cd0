"""`busbridge send`: messages to a queue or a topic."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bridge.commands.clock import now_ms
from bridge.commands.errors import WrongInput, sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import add_path, path_in
from bridge.commands.message_source import LineRefused, MessageSource, add_message
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.commands.batching import Numbered
    from bridge.remote.errors import RemoteError
    from bridge.remote.management import RemoteManagement
    from bridge.remote.sender import RemoteSender

RATE_STEP_S = 0.1
"""With a rate: the time that one batch stands for."""

BUSY_S = 60.0
"""How long a server that takes no more is asked again."""

REFUSALS_MAX = 100
"""Refusals one after another, after which the rest is not tried."""


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "send",
        "send messages to a queue or a topic",
        run=run,
        right="Send on the entity",
        examples=(
            "busbridge send orders '{\"total\": 12}' --subject order --property color=red",
            "busbridge send orders --lines orders.jsonl --rate 200",
        ),
    )
    add_path(parser, is_sent_to=True)
    add_message(parser, text_option=False)
    group = parser.add_argument_group("sending")
    group.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="send all N times (default: once)"
    )
    group.add_argument("--rate", type=float, metavar="N", help="N messages a second at most")
    group.add_argument(
        "--schedule", metavar="TIME",
        help="have them enqueued then: 2026-11-27T09:00:00Z, or PT5M from now; their sequence "
        "numbers are printed",
    )  # fmt: skip
    group.add_argument(
        "--skip", type=int, default=0, metavar="N", help="leave out the first N, to go on"
    )
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Send the messages in batches, in order."""
    from bridge.remote.namespace import RemoteNamespace

    if arguments.repeat < 1 or arguments.skip < 0:
        raise WrongInput("--repeat is above 0, --skip is not below.")
    schedule = None if arguments.schedule is None else Schedule.read(arguments.schedule)
    path = path_in([arguments.entity])
    source = MessageSource(arguments, now_ms=now_ms, repeat=arguments.repeat)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        sender = await namespace.sender(path)
        management = None if schedule is None else await namespace.management(path)
        sending = _Sending(output, sender, management, schedule, arguments)
        return await sending.run(source)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When messages are to be enqueued: at a time, or so long after they are sent."""

    time_ms: int = 0
    delay_ms: int = 0

    @classmethod
    def read(cls, text: str, option: str = "--schedule") -> Schedule:
        """Return the schedule of an option; WrongInput if it is none."""
        from bridge.model.duration import parse_duration_ms
        from bridge.operations.lines.scalar_values import ValueRefused, time_ms_of

        try:
            if text[:1] in "Pp":
                return cls(delay_ms=parse_duration_ms(text))
            return cls(time_ms=time_ms_of(text))
        except (ValueRefused, ValueError) as error:
            raise WrongInput(f"{option}: {error}.") from None

    def at_ms(self, sent_ms: int) -> int:
        """Return when a message is enqueued that is sent now."""
        return self.time_ms or sent_ms + self.delay_ms


@dataclass(slots=True)
class _Account:
    """What became of the messages, from the first on: `accounted` of them are sent or refused."""

    skipped: int
    sent: int = 0
    refused: list[str] = field(default_factory=list)
    in_a_row: int = 0

    @property
    def accounted(self) -> int:
        return self.skipped + self.sent + len(self.refused)


class _Sending:
    """Sends batches until the input ends, or somebody stops it."""

    def __init__(
        self,
        output: Output,
        sender: RemoteSender,
        management: RemoteManagement | None,
        schedule: Schedule | None,
        arguments: argparse.Namespace,
    ) -> None:
        self._output = output
        self._sender = sender
        self._management = management
        self._schedule = schedule
        self._entity = arguments.entity
        self._rate = arguments.rate
        self._began_s = time.monotonic()
        self._account = _Account(arguments.skip)
        self._under_way = 0

    async def run(self, source: MessageSource) -> int:
        """Send everything, and return the exit code."""
        from bridge.remote.errors import RemoteError

        account, output = self._account, self._output
        total = None if source.total is None else max(source.total - account.skipped, 0)
        with output.interruption.deferred() as asked, output.progress(total, "sending") as bar:
            try:
                async with aclosing(self._batches(source, asked)) as batches:
                    async for batch in batches:
                        await self._pace(asked)
                        if asked.is_set():
                            break
                        await self._send(batch)
                        bar.advance(len(batch))
                        if account.in_a_row >= REFUSALS_MAX:
                            return self._stopped("All are refused")
            except LineRefused as error:
                return self._stopped(str(error).rstrip("."))
            except RemoteError as error:
                return self._failed(error)
            except BrokenPipeError:
                return self._stopped("Who read the numbers has gone")
            except asyncio.CancelledError:  # the second interrupt
                return self._cancelled()
        if asked.is_set():
            return self._stopped("Stopped")
        self._say_refused()
        output.say(f"Sent {_messages(account.sent)} to {self._entity}.")
        return ExitCode.DIFFERENCES if account.refused else ExitCode.DONE

    def _batches(
        self, source: MessageSource, asked: asyncio.Event
    ) -> AsyncGenerator[list[Numbered], None]:
        """Return the batches behind those that are skipped; with a rate small ones."""
        from bridge.commands.batching import MESSAGES_MAX, Batching
        from bridge.commands.collecting import collected

        step = MESSAGES_MAX if self._rate is None else max(int(self._rate * RATE_STEP_S), 1)
        batching = Batching(self._sender.max_batch_size, step)
        return collected(source.messages(), batching, asked, skipped=self._account.skipped)

    async def _pace(self, asked: asyncio.Event) -> None:
        """Wait until as many were due as were sent."""
        if self._rate is None:
            return
        tried = self._account.accounted - self._account.skipped
        left_s = self._began_s + tried / self._rate - time.monotonic()
        if left_s > 0:
            try:
                await asyncio.wait_for(asked.wait(), left_s)
            except TimeoutError:
                return

    async def _send(self, batch: list[Numbered]) -> None:
        """Send a batch; where it is refused, each of it alone, to find what is refused."""
        from bridge.remote.errors import RemoteRefused

        account = self._account
        try:
            await self._transfer(batch)
        except RemoteRefused as error:
            # It is the entity that takes no more, whatever the message; or the batch may be there.
            if error.retryable or error.in_doubt:
                raise
            if len(batch) > 1:
                for each in batch:
                    await self._send([each])
                return
            account.refused.append(f"{batch[0].place}: {sentence_of(error)}")
            account.in_a_row += 1
        else:
            account.sent += len(batch)
            account.in_a_row = 0
        self._under_way = 0

    async def _transfer(self, batch: list[Numbered]) -> None:
        from bridge.background.retry import retry
        from bridge.remote.patience import growing_wait

        messages = [each.message for each in batch]
        self._under_way = len(batch)
        if self._schedule is None or self._management is None:
            await retry(
                lambda: self._sender.send(messages),
                wait_s=growing_wait(2.0, 2.0), retryable=_is_busy, total_s=BUSY_S,
            )  # fmt: skip
            return
        from bridge.operations.changes import scheduled

        management, due_ms = self._management, self._schedule.at_ms(now_ms())
        due = [scheduled(each, due_ms) for each in messages]
        numbers = await retry(
            lambda: management.schedule(due),
            wait_s=growing_wait(2.0, 2.0), retryable=_is_busy, total_s=BUSY_S,
        )  # fmt: skip
        time_of = datetime.fromtimestamp(due_ms / 1000, UTC)
        rows = [{"sequence_number": each, "scheduled_enqueue_time": time_of} for each in numbers]
        try:
            self._output.table(rows)
        except BrokenPipeError:
            self._account.sent += len(batch)
            raise

    def _say_refused(self) -> None:
        self._output.say_some("refused", self._account.refused)

    def _stopped(self, why: str) -> int:
        """Say where to go on, and return the exit code."""
        self._say_refused()
        account = self._account
        self._output.say(
            f"{why}. Sent {_messages(account.sent)} to {self._entity}; go on with "
            f"--skip {account.accounted}."
        )
        return ExitCode.STOPPED

    def _failed(self, error: RemoteError) -> int:
        """Say what the failure leaves in doubt; raise it if nothing was done before."""
        account = self._account
        if not error.in_doubt and not account.sent:
            raise error
        if not error.in_doubt:
            return self._stopped(sentence_of(error).rstrip("."))
        return self._in_doubt(sentence_of(error))

    def _cancelled(self) -> int:
        """Say where to go on after what was stopped at once."""
        return self._in_doubt("Stopped at once.") if self._under_way else self._stopped("Stopped")

    def _in_doubt(self, why: str) -> int:
        """Say what may have been sent, and both ways to go on; return the exit code."""
        account = self._account
        self._say_refused()
        next_ones = "one" if self._under_way == 1 else f"{self._under_way:,}"
        self._output.say(
            f"{why} Sent {_messages(account.sent)} to {self._entity} for sure; the "
            f"next {next_ones} may have been sent, or not. Go on with --skip {account.accounted}, "
            f"where they may be sent twice, or with --skip {account.accounted + self._under_way}, "
            "where they may be missing."
        )
        return ExitCode.STOPPED


def _is_busy(error: BaseException) -> bool:
    """Whether nothing was done, and more is taken later."""
    from bridge.remote.errors import RemoteBusy

    return isinstance(error, RemoteBusy) and not error.in_doubt


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"
