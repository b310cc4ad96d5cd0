"""`busbridge undo`: puts back what was purged, and withdraws what was sent again."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from bridge.commands.clock import now_ms
from bridge.commands.copy_target import check_duplicates, opened_outlet, target_path
from bridge.commands.errors import CommandError, WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.progress_record import ProgressRecord, locked
from bridge.commands.taking import take
from bridge.commands.taking_options import WAIT_S, check_receiving, messages
from bridge.commands.target import NamespaceLogin, add_target, target_of
from bridge.operations.taking_rules import HOLD

if TYPE_CHECKING:
    from bridge.commands.taking_run import Judged
    from bridge.operations.undo_file import AwaitedCopies, Taken, UndoHead
    from bridge.remote.delivery import RemoteDelivery
    from bridge.remote.namespace import RemoteNamespace

CHUNK: Final = 250
"""Lines that are looked for at the source together."""


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "undo",
        "undo what a command has done with dead letters, from the file of its --undo",
        run=run,
        right="Listen on the entity and Send on the target (with Manage on it, a bridge takes none "
        "twice)",
        examples=(
            "busbridge undo red.jsonl",
            "busbridge undo sent.jsonl --hold 5000 --yes",
        ),
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the undo file")
    parser.add_argument(
        "--to", metavar="ENTITY",
        help="of a purge: the queue, the topic, or TOPIC/Subscriptions/NAME that gets the messages "
        "(default: the entity whose dead letters they were; a subscription alone, at a bridge)",
    )  # fmt: skip
    parser.add_argument(
        "--new-id", action="store_true",
        help="of a purge: a MessageId that is made of source, number and time, for a target that "
        "detects duplicates",
    )  # fmt: skip
    parser.add_argument(
        "--at", metavar="ENTITY",
        help="of a resubmit to a topic: the subscription where the copies wait, as "
        "TOPIC/Subscriptions/NAME",
    )  # fmt: skip
    parser.add_argument(
        "--hold", type=int, default=HOLD, metavar="N",
        help="of a resubmit: messages that are no copies and stand in front are locked until the "
        f"end, N at most; all go back uncounted (default: {HOLD:,})",
    )  # fmt: skip
    parser.add_argument(
        "--wait", type=float, default=WAIT_S, metavar="SECONDS",
        help="of a resubmit: there are no more when none comes for so long (default: "
        f"{WAIT_S:g})",
    )  # fmt: skip
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Undo what the file says."""
    from bridge.operations.lines.scalar_values import ValueRefused
    from bridge.operations.undo_file import UndoHead
    from bridge.remote.namespace import RemoteNamespace

    check_receiving(arguments)
    path: Path = arguments.file
    target = target_of(arguments)
    with locked(path) as file:
        first = file.readline()
        try:
            head = UndoHead.read(first.decode(errors="replace"))
        except ValueRefused as error:
            raise WrongInput(f"{path}: {error}.") from None
        if head.namespace.lower() != target.address.namespace.lower():
            raise WrongInput(
                f"{path} is of the namespace {head.namespace}, and this is "
                f"{target.address.namespace}."
            )
        _check_options(arguments, head)
        async with RemoteNamespace(target.address, target.credential) as namespace:
            if head.verb == "purge":
                return await _put_back(namespace, target, file, head, arguments, output)
            return await _withdraw(namespace, file, head, arguments, output)


def _check_options(arguments: argparse.Namespace, head: UndoHead) -> None:
    """Raise WrongInput for an option of the other kind of file."""
    others = {
        "purge": {"--at": arguments.at is not None},
        "resubmit": {"--to": arguments.to is not None, "--new-id": arguments.new_id},
    }[head.verb]
    for name, is_given in others.items():
        if is_given:
            raise WrongInput(f"{name}: the file is of a {head.verb}.")


def _taken(path: Path, file: BinaryIO) -> Iterator[tuple[int, Taken]]:
    """Yield the messages behind the first line, each once, with the numbers of their lines.

    Raises:
        CommandError: a line is no message.
    """
    from bridge.operations.lines.scalar_values import ValueRefused
    from bridge.operations.undo_file import entries

    line = 1

    def whole() -> Iterator[str]:
        nonlocal line
        for raw in file:
            if not raw.endswith(b"\n"):  # cut short: what it stands for was not touched
                return
            line += 1
            yield raw.decode()

    try:
        for each in entries(whole()):
            yield line, each
    except (ValueRefused, UnicodeDecodeError) as error:
        raise CommandError(f"{path}:{line}: {error}.") from None


async def _chunks(
    namespace: RemoteNamespace,
    head: UndoHead,
    found: Iterator[tuple[int, Taken]],
) -> AsyncIterator[list[tuple[int, Taken, bool]]]:
    """Yield messages with their lines, and whether the source has them still."""
    from itertools import islice

    from bridge.remote.errors import RemoteNotFound

    management = await namespace.management(head.entity)
    is_gone = False
    while chunk := list(islice(found, CHUNK)):
        by_number: dict[int, list[tuple[int, Taken]]] = {}
        for line, taken in chunk:
            by_number.setdefault(taken.number, []).append((line, taken))
        wanted = sorted(each for each in by_number if each)
        there: set[int] = set()
        while wanted and not is_gone:
            try:
                page = await management.peek(wanted[0], CHUNK)
            except RemoteNotFound:
                is_gone = True
                break
            for each in page:
                for line, taken in by_number.get(int(each.sequence_number or 0), ()):
                    if taken.is_at_source(each):
                        there.add(line)
            last = max((int(each.sequence_number or 0) for each in page), default=0)
            if last < wanted[0]:
                break
            wanted = [each for each in wanted if each > last]
        yield [(line, taken, line in there) for line, taken in chunk]


@dataclass(frozen=True, slots=True)
class _Original:
    """What is kept of a message while its copy is looked for; not its body."""

    number: int
    message_id: object
    reason: str | None
    description: str | None

    @classmethod
    def of(cls, taken: Taken) -> _Original:
        from bridge.wire.amqp10.errors import DecodeError

        message = taken.message
        try:
            reason, description = message.dead_letter_reason, message.dead_letter_error_description
            message_id = message.message_id
        except DecodeError:
            return cls(taken.number, None, None, None)
        return cls(
            taken.number,
            message_id,
            reason if isinstance(reason, str) else None,
            description if isinstance(description, str) else None,
        )


def _rows(rest: Iterable[tuple[int, _Original]], why: str) -> Iterator[dict[str, object]]:
    for line, original in rest:
        yield {
            "line": line,
            "number": original.number,
            "message_id": _text(original.message_id),
            "why": why,
        }


def _text(message_id: object) -> object:
    """Return an id as JSON has it: Azure's are texts, other senders' may be numbers and more."""
    return message_id if message_id is None or isinstance(message_id, int) else str(message_id)


async def _put_back(
    namespace: RemoteNamespace,
    target: NamespaceLogin,
    file: BinaryIO,
    head: UndoHead,
    arguments: argparse.Namespace,
    output: Output,
) -> int:
    """Send what was purged, as new messages."""
    from bridge.commands.copy_sending import CopySending, CopyToSend, say_sent
    from bridge.model.name import parse_path
    from bridge.operations.changes import MessageChanges, sent_again
    from bridge.operations.lines.scalar_values import ValueRefused
    from bridge.relay.plan.source_identity import derived_message_id, source_name

    path: Path = arguments.file
    to = target_path(head.entity, arguments.to or parse_path(head.entity).entity)
    record = ProgressRecord(
        path, {"undo": hashlib.sha256(head.line().encode()).hexdigest()[:32], "target": to}
    )
    output.confirm(
        f"What was removed from {head.entity} is sent to {to}, each as a new message with a new "
        "number: nobody can send to a dead-letter queue."
    )
    if not arguments.new_id:
        await check_duplicates(target, to, output)
    source = source_name(head.namespace, head.entity)
    outlet = await opened_outlet(namespace, source, to, output)
    left: list[tuple[int, _Original]] = []
    with output.interruption.deferred() as asked, output.progress(None, "sending") as progress:
        sending = CopySending(outlet, record.note, asked, record.line)
        async for chunk in _chunks(namespace, head, _taken(path, file)):
            for line, taken, is_there in chunk:
                if line <= record.line:
                    continue
                if is_there:
                    left.append((line, _Original.of(taken)))
                    sending.skip(line)
                    continue
                changes = MessageChanges()
                if arguments.new_id:
                    new_id = derived_message_id(source, taken.number, taken.enqueued_ms)
                    changes = MessageChanges({"message_id": new_id})
                try:
                    message = sent_again(taken.message, now_ms(), changes)
                except ValueRefused as error:
                    sending.refuse(line, str(error))
                    continue
                await sending.add(CopyToSend(message, taken.number, taken.enqueued_ms, line))
                progress.advance(sending.sent - progress.done)
                if sending.stopped:
                    break
            if sending.stopped:
                break
        await sending.flush()
    if left:
        output.table(list(_rows(left, "it was not removed")))
        output.say(f"{messages(len(left))} of {head.entity} were not removed, and are there still.")
    code = say_sent(output, sending, f"sent to {to}")
    return ExitCode.DIFFERENCES if left and code == ExitCode.DONE else code


async def _withdraw(
    namespace: RemoteNamespace,
    file: BinaryIO,
    head: UndoHead,
    arguments: argparse.Namespace,
    output: Output,
) -> int:
    """Dead-letter what still waits at the target, and list the rest."""
    from bridge.model.name import parse_path
    from bridge.operations.lines.scalar_values import ValueRefused
    from bridge.operations.taking_rules import TakingRules
    from bridge.operations.undo_file import AwaitedCopies

    source, to = parse_path(head.entity).entity, arguments.at or head.to
    if arguments.at is None and source.lower().startswith(f"{to.lower()}/subscriptions/"):
        raise WrongInput(
            f"They were sent to the topic {to}, and wait at each of its subscriptions: name one by "
            f"--at, such as {source}."
        )
    awaited = AwaitedCopies(head)
    rest: dict[int, _Original] = {}
    there: list[tuple[int, _Original]] = []
    async for chunk in _chunks(namespace, head, _taken(arguments.file, file)):
        for line, taken, is_there in chunk:
            if is_there:
                there.append((line, _Original.of(taken)))
                continue
            with suppress(ValueRefused):  # it had no copy
                awaited.add(taken, line)
            rest[line] = _Original.of(taken)
    wanted = len(awaited)
    output.confirm(
        f"Of {messages(wanted)} that were sent to {head.to}, those that wait at {to} are "
        f"dead-lettered there, for the reasons they had in {head.entity}."
    )
    if not wanted:
        output.say(f"No message of {head.entity} was sent to {head.to}.")
        return ExitCode.DONE
    code = await take(
        output,
        namespace,
        to,
        TakingRules(is_moving=False, limit=wanted, hold=arguments.hold),
        _Judge(awaited, rest).judge,
        wait_s=arguments.wait,
        doing="withdrawing",
        done="dead-lettered again",
    )
    if code == ExitCode.STOPPED:
        return code
    gone = list(rest.items())
    if gone or there:
        output.table(
            [
                *_rows(gone, f"no copy of it was found at {to}"),
                *_rows(there, "it was not removed"),
            ]
        )
    if gone:
        output.say(
            f"Of {messages(len(gone))} no copy was found at {to}: they are received, locked by "
            "somebody, deferred, or dead again already."
        )
    if there:
        output.say(
            f"{messages(len(there))} of {head.entity} were not removed, and are there still."
        )
    return ExitCode.DIFFERENCES if gone else code


class _Judge:
    """Says which messages are copies; each has the fate of its original."""

    def __init__(self, awaited: AwaitedCopies, rest: dict[int, _Original]) -> None:
        self._awaited = awaited
        self._rest = rest
        self._known: dict[tuple[int, int], _Original] = {}

    async def judge(self, delivery: RemoteDelivery) -> Judged:
        """Return what becomes of a message; of one whose lock has ended the same again."""
        from bridge.commands.taking_run import Judged
        from bridge.operations.lines.scalar_values import ValueRefused
        from bridge.remote.outcomes import DeadLetter
        from bridge.wire.amqp10.errors import DecodeError

        message = delivery.message
        identity = int(message.sequence_number or 0), int(message.enqueued_time_ms or 0)
        original = self._known.get(identity)
        if original is None:
            try:
                place = self._awaited.find(message)
            except (ValueRefused, DecodeError):  # what cannot be taken apart was not sent again
                place = None
            if place is None:
                return Judged(False)
            original = self._known[identity] = self._rest.pop(place)
        return Judged(True, outcome=DeadLetter(original.reason, original.description))
