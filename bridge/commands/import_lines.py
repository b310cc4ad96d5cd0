"""`busbridge import`: sends the messages of an export's file, and goes on where it was stopped."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from uuid import uuid4

from bridge.commands.clock import now_ms
from bridge.commands.copy_target import check_duplicates, opened_outlet, target_path
from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.input_lines import is_again_readable
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.progress_record import ProgressRecord, locked
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.operations.changes import MessageChanges
    from bridge.remote.message import RemoteMessage

FAULTS_SAID: Final = 5
"""Lines whose faults are said before the first message is sent."""


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "import",
        "send the messages of a file of lines, as export writes it, as new ones; the same command "
        "goes on with it",
        run=run,
        right="Send on the entity (with Manage on it, a bridge takes none twice)",
        examples=(
            "busbridge import orders orders.jsonl",
            "busbridge import events/Subscriptions/audit audit.jsonl --new-id",
        ),
    )
    parser.add_argument(
        "entity", metavar="ENTITY",
        help="a queue or a topic, or TOPIC/Subscriptions/NAME for this subscription alone, at a "
        "bridge with the right Manage",
    )  # fmt: skip
    parser.add_argument("file", type=Path, metavar="FILE", help="the file, in a folder to write in")
    parser.add_argument(
        "--from-line", type=int, metavar="N",
        help="begin anew at this line, whatever FILE.progress says; what was sent is sent again",
    )  # fmt: skip
    parser.add_argument(
        "--new-id", action="store_true",
        help="a MessageId that is made for each line, for a target that detects duplicates: of a "
        "repeat it is the same",
    )  # fmt: skip
    add_target(parser)


class BatchNumbers:
    """Lines are sent in order, one batch after the other: what is in front never comes again."""

    def told(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return the lowest number of a batch."""
        return {0: min(numbers)}


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Send what is not sent yet."""
    path: Path = arguments.file
    to = target_path(arguments.entity.strip("/"), arguments.entity.strip("/"))
    if not is_again_readable(str(path)):
        raise WrongInput(f"{path}: there is no such file; lines of a pipe are sent by `send`.")
    if arguments.from_line is not None and arguments.from_line < 1:
        raise WrongInput("--from-line is at least 1.")
    with locked(path) as file:
        return await _run(arguments, output, file, to)


async def _run(arguments: argparse.Namespace, output: Output, file: BinaryIO, to: str) -> int:
    from bridge.commands.copy_sending import CopySending, CopyToSend, say_sent
    from bridge.operations.changes import MessageChanges
    from bridge.operations.lines.scalar_values import ValueRefused
    from bridge.relay.plan.source_identity import derived_message_id
    from bridge.remote.namespace import RemoteNamespace

    path: Path = arguments.file
    with output.progress(None, f"reading {path}"):
        digest, last = await asyncio.to_thread(_checked, path, file)
    target = target_of(arguments)
    place = f"{target.address.namespace.lower()}/{to}"
    record = ProgressRecord(path, {"file": digest, "target": place}, {"id": uuid4().hex})
    if arguments.from_line is None and record.line >= last:
        output.say(
            f"All of {path} was sent to {to}, as {record.path} says: remove that to send it again."
        )
        return ExitCode.DONE
    if not arguments.new_id:
        await check_duplicates(target, to, output)
    if arguments.from_line is not None:
        record.restart(arguments.from_line - 1, {"id": uuid4().hex})
    source = f"import/{record.values['id']}"
    async with RemoteNamespace(target.address, target.credential) as namespace:
        outlet = await opened_outlet(namespace, source, to, output, BatchNumbers())
        record.note(record.line)  # its id, before anything is sent by it
        with (
            output.interruption.deferred() as asked,
            output.progress(max(last - record.line, 0), "sending lines") as bar,
        ):
            sending = CopySending(outlet, record.note, asked, record.line)
            first = record.line
            for line, text in _lines(file):
                if line <= first:
                    continue
                changes = MessageChanges()
                if arguments.new_id:
                    changes = MessageChanges({"message_id": derived_message_id(source, line, 0)})
                try:
                    message = _message(text, changes)
                except ValueRefused as error:
                    sending.refuse(line, str(error))
                    continue
                await sending.add(CopyToSend(message, line, 0, line))
                bar.advance(sending.line - first - bar.done)
                if sending.stopped:
                    break
            await sending.flush()
    return say_sent(output, sending, f"sent to {to}")


def _lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, with their numbers."""
    file.seek(0)
    for number, raw in enumerate(file, 1):
        if raw.strip():
            yield number, raw.decode("utf-8-sig")


def _checked(path: Path, file: BinaryIO) -> tuple[str, int]:
    """Return the digest of a file, and its last line that is not empty, after a look at each.

    Raises:
        WrongInput: lines are no messages; nothing was sent.
    """
    from bridge.operations.changes import MessageChanges
    from bridge.operations.lines.scalar_values import ValueRefused

    digest, last, faults = hashlib.sha256(), 0, 0
    said: list[str] = []
    file.seek(0)
    for number, raw in enumerate(file, 1):
        digest.update(raw)
        if not raw.strip():
            continue
        last = number
        try:
            _message(raw.decode("utf-8-sig"), MessageChanges())
        except (ValueRefused, UnicodeDecodeError) as error:
            faults += 1
            if faults <= FAULTS_SAID:
                said.append(f"{path}:{number}: {error}.")
    if faults:
        more = [f"{faults - FAULTS_SAID:,} lines more are wrong."] if faults > FAULTS_SAID else []
        raise WrongInput("\n".join([*said, *more]))
    return digest.hexdigest()[:32], last


def _message(text: str, changes: MessageChanges) -> RemoteMessage:
    """Return the message of a line; of one that was scheduled its time stays.

    Raises:
        ValueRefused: the line stands for no message that can be sent.
    """
    from bridge.operations.changes import scheduled, sent_again
    from bridge.operations.lines.exact_lines import message_of_fields
    from bridge.operations.lines.line_text import parsed

    fields = parsed(text)
    now = now_ms()
    if fields.get("sequence_number") is None:  # nobody has received it: it is somebody's own line
        return changes.applied(message_of_fields(fields, now_ms=now), now)
    message = message_of_fields(fields, now_ms=now, is_sent=False)
    copy = sent_again(message, now, changes)
    due_ms = message.scheduled_enqueue_time_ms
    if message.state == "scheduled" and due_ms is not None:
        return scheduled(copy, int(due_ms))
    return copy
