"""`busbridge receive`: messages under lock, and what then becomes of them."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bridge.commands.errors import CommandError, WrongInput, sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.property_values import properties_of
from bridge.commands.settlement_account import LOCKED, NOT_SHOWN, UNKNOWN, SettlementAccount
from bridge.commands.target import add_target, target_of
from bridge.commands.watching import unless

if TYPE_CHECKING:
    from bridge.remote.delivery import RemoteDelivery
    from bridge.remote.namespace import RemoteNamespace
    from bridge.remote.outcomes import RemoteOutcome
    from bridge.remote.receiver import ReceiveMode, RemoteReceiver

COUNT = 1
WAIT_S = 5.0
ROUND = 100
"""Messages that are received and settled together."""

RENEW_S = 15.0
"""A session's lock that ends sooner is renewed."""

SETTLEMENTS: Final = ("complete", "abandon", "defer", "dead-letter", "release")
NOBODY_READS: Final = "Who read the output has gone."

HELD: Final = ("abandon", "release")
"""Settled when all are received: what is given back would be received again."""


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "receive",
        "receive messages under lock, show them, and settle them; without --settle they go back "
        "as they were, uncounted",
        run=run,
        right="Listen on the entity",
        examples=(
            "busbridge receive orders --all --settle complete --yes > orders.jsonl",
            "busbridge receive events audit --count 10 --settle dead-letter --reason unreadable",
        ),
    )
    add_path(parser)
    many = parser.add_mutually_exclusive_group()
    many.add_argument(
        "--count", "-c", type=int, default=COUNT, metavar="N",
        help=f"how many at most (default: {COUNT})",
    )  # fmt: skip
    many.add_argument("--all", action="store_true", help="until none comes any more")
    many.add_argument(
        "--number", type=int, action="append", metavar="N", dest="numbers",
        help="the deferred message of this sequence number; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--wait", type=float, default=WAIT_S, metavar="SECONDS",
        help=f"how long to wait for the next message (default: {WAIT_S:g})",
    )  # fmt: skip
    session = parser.add_mutually_exclusive_group()
    session.add_argument("--session", metavar="ID", help="receive from this session")
    session.add_argument(
        "--next-session", action="store_true", help="receive from the next session with messages"
    )
    group = parser.add_argument_group("settlement")
    way = group.add_mutually_exclusive_group()
    way.add_argument(
        "--settle", choices=SETTLEMENTS, default="release",
        help="abandon counts the delivery, release does not; complete removes the message "
        "(default: release)",
    )  # fmt: skip
    way.add_argument(
        "--delete", action="store_true",
        help="receive and delete: no lock, so a message is lost if the command ends before it is "
        "shown",
    )  # fmt: skip
    group.add_argument("--reason", metavar="TEXT", help="DeadLetterReason")
    group.add_argument("--description", metavar="TEXT", help="DeadLetterErrorDescription")
    group.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", dest="properties",
        help="a property to set, by --settle abandon, defer and dead-letter; VALUE as in send",
    )  # fmt: skip
    parser.add_argument(
        "--full", action="store_true", help="everything of each message, not a table"
    )
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Receive messages and settle them."""
    from bridge.remote.errors import RemoteError
    from bridge.remote.namespace import RemoteNamespace

    path = path_in(arguments.entity, is_dead_letter=arguments.dead_letter)
    outcome = _outcome(arguments)
    if arguments.delete or arguments.settle == "complete":
        which = "All messages" if arguments.all else "The received messages"
        output.confirm(f"{which} are removed from {path}.")
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        if arguments.numbers:
            return await _receive_deferred(namespace, path, arguments, outcome, output)
        receiver = await _receiver(namespace, path, arguments)
        if receiver is None:
            output.say(f"No session with messages came within {arguments.wait:g} s.")
            return ExitCode.DONE
        try:
            return await _Receiving(receiver, arguments, outcome, output).run()
        finally:
            with suppress(RemoteError):  # a lost connection gives everything back by itself
                await receiver.close()


async def _receiver(
    namespace: RemoteNamespace, path: str, arguments: argparse.Namespace
) -> RemoteReceiver | None:
    """Return the receiver; `None` if no session comes in time."""
    from bridge.remote.errors import RemoteRefused, RemoteTimeout

    mode: ReceiveMode = "receive-and-delete" if arguments.delete else "peek-lock"
    if arguments.session is None and not arguments.next_session:
        try:
            return await namespace.receiver(path, mode)
        except RemoteRefused as error:
            if "requires sessions" not in str(error):
                raise
            text = f"{sentence_of(error)} Name one by --session, or take --next-session."
            raise CommandError(text) from error
    try:
        return await namespace.session_receiver(
            path, arguments.session, mode, max_wait_s=arguments.wait
        )
    except RemoteTimeout:
        if arguments.session is not None:
            raise
        return None


def _outcome(arguments: argparse.Namespace) -> RemoteOutcome:
    """Return how messages are settled; WrongInput for options that do not go together."""
    from bridge.remote import outcomes

    way = arguments.settle
    if arguments.count < 1:
        raise WrongInput("--count is at least 1.")
    if way != "dead-letter" and (arguments.reason or arguments.description):
        raise WrongInput("--reason and --description belong to --settle dead-letter.")
    if arguments.properties and way not in ("abandon", "defer", "dead-letter"):
        raise WrongInput("--property belongs to --settle abandon, defer or dead-letter.")
    if arguments.numbers and way == "release":
        raise WrongInput(
            "A deferred message cannot be given back uncounted: give --settle, or look at it with "
            "`busbridge peek --state deferred`."
        )
    properties = _properties(arguments.properties)
    match way:
        case "complete":
            return outcomes.Complete()
        case "abandon":
            return outcomes.Abandon(properties)
        case "defer":
            return outcomes.Defer(properties)
        case "dead-letter":
            return outcomes.DeadLetter(arguments.reason, arguments.description, properties)
    return outcomes.Release()


def _properties(texts: Sequence[str]) -> dict[str, object]:
    from bridge.operations.lines.scalar_values import ValueRefused
    from bridge.operations.lines.typed_values import bytes_of
    from bridge.wire.amqp10.types import decode

    found: dict[str, object] = {}
    for name, value in properties_of(texts).items():
        try:
            found[name] = decode(bytes_of(value))[0]
        except ValueRefused as error:
            raise WrongInput(f"--property {name}: {error}.") from None
    return found


class _Receiving:
    """Receives in rounds: shows what has come, then settles it, or holds it until the end."""

    def __init__(
        self,
        receiver: RemoteReceiver,
        arguments: argparse.Namespace,
        outcome: RemoteOutcome,
        output: Output,
    ) -> None:
        self._receiver = receiver
        self._arguments = arguments
        self._outcome = outcome
        self._output = output
        self._held: list[RemoteDelivery] = []
        self._seen: set[int | None] = set()
        self._account = SettlementAccount(output, arguments.settle)

    async def run(self) -> int:
        """Receive until enough have come, or none comes, or somebody or a failure stops it."""
        from bridge.remote.errors import RemoteError

        fate = NOT_SHOWN if self._arguments.delete else "given back uncounted"
        try:
            is_stopped = await self._receive()
        except RemoteError as error:
            if not self._account.received:
                raise
            self._output.say(sentence_of(error))
            is_stopped, fate = True, LOCKED
        except asyncio.CancelledError:  # the second interrupt
            is_stopped, fate = True, UNKNOWN
            if self._arguments.delete:
                self._output.say("What came last may be deleted, and not shown.")
        except BrokenPipeError:
            with suppress(BrokenPipeError):
                if self._arguments.delete:
                    await self._take_late()
            self._output.say(NOBODY_READS)
            is_stopped = True
        return self._account.say(
            came_within_s=self._arguments.wait,
            is_stopped=is_stopped,
            fate=fate,
            count=None if self._arguments.all else self._arguments.count,
        )

    async def _receive(self) -> bool:
        """Receive and settle; return whether somebody has stopped it."""
        arguments, output, account = self._arguments, self._output, self._account
        total = None if arguments.all else arguments.count
        with output.interruption.deferred() as asked, output.progress(total, "receiving") as bar:
            while not asked.is_set() and (total is None or account.received < total):
                wanted = ROUND if total is None else min(ROUND, total - account.received)
                round_ = await self._next(wanted, asked)
                if not round_:
                    break
                has_come_before = arguments.settle in HELD and self._has_seen(round_)
                account.received += len(round_)
                bar.advance(len(round_))
                await self._take(round_)
                if has_come_before:
                    break
            if arguments.delete:
                await self._take_late()
            elif not asked.is_set():
                await self._settle(self._held)
        return asked.is_set()

    async def _take_late(self) -> None:
        """Show what came while the receiving ended: the namespace has deleted it already."""
        from bridge.remote.errors import RemoteError

        await self._receiver.close()
        with suppress(RemoteError):  # nothing is left, and nothing more is received
            while late := await self._receiver.receive(ROUND, 0):
                self._account.received += len(late)
                await self._take(late)

    async def _next(self, wanted: int, asked: asyncio.Event) -> list[RemoteDelivery]:
        """Return what comes next; nothing if none comes in time, or somebody stops it."""
        from bridge.remote.errors import RemoteLinkEnded

        await self._renew()
        received = await unless(asked, self._receiver.receive(wanted, self._arguments.wait))
        try:
            return [] if received is None else received.result()
        except RemoteLinkEnded:
            # Azure detaches a link that was idle for ten minutes; a session's lock ends with it.
            if self._held or self._arguments.session or self._arguments.next_session:
                raise
            return await self._receiver.receive(wanted, self._arguments.wait)

    async def _renew(self) -> None:
        """Renew a session's lock before it ends."""
        from bridge.remote.session_receiver import RemoteSessionReceiver

        if isinstance(self._receiver, RemoteSessionReceiver):
            left_s = self._receiver.locked_until_ms / 1000 - time.time()
            if left_s < RENEW_S:
                await self._receiver.renew()

    def _has_seen(self, round_: Sequence[RemoteDelivery]) -> bool:
        """Note the numbers; return whether one was there: its lock has ended meanwhile."""
        numbers = {each.message.sequence_number for each in round_} - {None}
        has_seen = not self._seen.isdisjoint(numbers)
        self._seen |= numbers
        return has_seen

    async def _take(self, round_: Sequence[RemoteDelivery]) -> None:
        """Show messages, and only then settle them."""
        _show(self._output, round_, self._arguments, self._account)
        if self._arguments.delete:
            return
        if self._arguments.settle in HELD:
            self._held += round_
        else:
            await self._settle(round_)

    async def _settle(self, deliveries: Sequence[RemoteDelivery]) -> None:
        results = await asyncio.gather(
            *(self._receiver.settle(each, self._outcome) for each in deliveries),
            return_exceptions=True,
        )
        for delivery, result in zip(deliveries, results, strict=True):
            self._account.settled(delivery, result)


def _show(
    output: Output,
    deliveries: Sequence[RemoteDelivery],
    arguments: argparse.Namespace,
    account: SettlementAccount,
) -> None:
    """Show messages; those that are deleted are counted as they are shown, one by one in a pipe."""
    from bridge.commands.shown_messages import write

    size = 1 if arguments.delete and not output.is_table else max(len(deliveries), 1)
    for at in range(0, len(deliveries), size):
        part = deliveries[at : at + size]
        write(output, [each.message for each in part], is_full=arguments.full)
        if arguments.delete:
            account.deleted(len(part))


async def _receive_deferred(
    namespace: RemoteNamespace,
    path: str,
    arguments: argparse.Namespace,
    outcome: RemoteOutcome,
    output: Output,
) -> int:
    """Receive deferred messages by their numbers, and settle them."""
    from bridge.remote.errors import RemoteError

    management = await namespace.management(path)
    mode: ReceiveMode = "receive-and-delete" if arguments.delete else "peek-lock"
    account = SettlementAccount(output, arguments.settle)
    left = list(arguments.numbers)
    is_unread = False
    fate = NOT_SHOWN if arguments.delete else LOCKED
    with output.interruption.deferred() as asked:
        while left and not asked.is_set():
            asked_for = left[:ROUND]
            try:
                found = await management.receive_deferred(asked_for, mode, arguments.session)
            except RemoteError as error:
                if not account.received:
                    raise
                doubt = " It may have been done, or not." if error.in_doubt else ""
                output.say(f"{sentence_of(error)}{doubt}")
                break
            del left[:ROUND]
            account.received += len(found)
            try:
                _show(output, found, arguments, account)
            except BrokenPipeError:
                output.say(NOBODY_READS)
                is_unread = True
                left = left if arguments.delete else [*asked_for, *left]
                break
            if arguments.delete:
                continue
            tokens = [each.lock_token for each in found if each.lock_token is not None]
            failure = None
            try:
                await management.settle_deferred(tokens, outcome, arguments.session)
            except RemoteError as error:
                failure = error
            except asyncio.CancelledError:  # the second interrupt
                fate, left = UNKNOWN, [*asked_for, *left]
                break
            for delivery in found:
                account.settled(delivery, failure)
    go_on = f"Go on with --number {left[0]}, and those behind it." if left else ""
    return account.say(
        came_within_s=0,
        is_stopped=bool(left) or is_unread,
        fate=fate,
        go_on=go_on,
    )
