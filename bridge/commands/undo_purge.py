"""Undoes a purge: what was surely removed is sent again, as new messages."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.commands.clock import now_ms
from bridge.commands.copy_sending import CopySending, CopyToSend, say_sent
from bridge.commands.copy_target import check_duplicates, opened_outlet, target_path
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import is_dead_letter_path
from bridge.commands.output import Output
from bridge.commands.progress_record import ProgressRecord
from bridge.commands.taking_options import messages
from bridge.commands.target import NamespaceLogin
from bridge.commands.undo_reading import UndoLines, UndoOriginal, chunks, original_rows
from bridge.operations.undo_file import TakenFate

if TYPE_CHECKING:
    from bridge.operations.undo_file import Taken, UndoHead
    from bridge.relay.running.outlet import Outlet
    from bridge.remote.message import RemoteMessage
    from bridge.remote.namespace import RemoteNamespace


async def put_back(
    namespace: RemoteNamespace,
    target: NamespaceLogin,
    lines: UndoLines,
    head: UndoHead,
    arguments: argparse.Namespace,
    output: Output,
) -> int:
    """Send what was purged, as new messages, and list what is not sure to be removed."""
    from bridge.model.name import parse_path
    from bridge.relay.plan.source_identity import source_name

    path: Path = arguments.file
    to = target_path(head.entity, arguments.to or parse_path(head.entity).entity)
    made = {"undo": hashlib.sha256(head.line().encode()).hexdigest()[:32], "target": to}
    removed = ProgressRecord(path, made)
    doubtful = ProgressRecord(path.with_name(f"{path.name}.doubtful"), made)
    back = _PuttingBack(namespace, lines, head, output)
    output.confirm(back.question(to, is_doubtful_sent=arguments.doubtful))
    if not arguments.new_id:
        await check_duplicates(target, to, output)
    source = source_name(head.namespace, head.entity)
    outlet = await opened_outlet(namespace, source, to, output)
    id_source = source if arguments.new_id else None
    done = f"sent to {to}"
    code = await back.send(TakenFate.REMOVED, removed, outlet, id_source, done)
    if code == ExitCode.STOPPED:
        return code
    if arguments.doubtful:
        code = max(code, await back.send(TakenFate.DOUBTFUL, doubtful, outlet, id_source, done))
    return max(code, await back.list_rest(doubtful.line))


class _PuttingBack:
    """Sends messages of a file again, those of one fate after those of another."""

    def __init__(
        self, namespace: RemoteNamespace, lines: UndoLines, head: UndoHead, output: Output
    ) -> None:
        self._namespace = namespace
        self._lines = lines
        self._head = head
        self._output = output
        self._fates = lines.fates()

    def question(self, to: str, *, is_doubtful_sent: bool) -> str:
        """Return what is asked before anything is sent."""
        of = list(self._fates.values())
        why = (
            "nobody can send to a dead-letter queue"
            if is_dead_letter_path(self._head.entity)
            else "a scheduled one for its time, or at once if that has passed, a deferred one as "
            "an active one"
        )
        text = (
            f"{messages(of.count(TakenFate.REMOVED))} that were removed from {self._head.entity} "
            f"are sent to {to}, each as a new message with a new number: {why}."
        )
        if not (doubtful := of.count(TakenFate.DOUBTFUL)):
            return text
        then = (
            "they are sent, too, unless they are there still: who has received one since gets it "
            "twice"
            if is_doubtful_sent
            else "they are not sent, but listed"
        )
        return f"{text} Of {messages(doubtful)} it is not sure that they were removed: {then}."

    async def send(
        self,
        fate: TakenFate,
        record: ProgressRecord,
        outlet: Outlet,
        id_source: str | None,
        done: str,
    ) -> int:
        """Send the messages of a fate that the source has no more, and return the exit code.

        Args:
            id_source: of which new MessageIds are made; `None`: ids stay.
            done: what has become of those that were sent, as "sent to orders".
        """
        from bridge.operations.lines.scalar_values import ValueRefused

        output = self._output
        with output.interruption.deferred() as asked, output.progress(None, "sending") as progress:
            sending = CopySending(outlet, record.note, asked, record.line)
            async for chunk in chunks(self._namespace, self._head, self._lines.taken()):
                for line, taken, is_there in chunk:
                    if line <= record.line:
                        continue
                    if is_there or self._fate(taken) is not fate:
                        sending.skip(line)
                        continue
                    try:
                        message = self._copy(taken, id_source)
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
        return say_sent(output, sending, done)

    def _fate(self, taken: Taken) -> TakenFate:
        """Return what the file says of a message; bytes that are none are told from no others."""
        return TakenFate.REMOVED if taken.message.unread else self._fates[taken.identity]

    def _copy(self, taken: Taken, id_source: str | None) -> RemoteMessage:
        """Return a message as it is sent again; ValueRefused: it cannot be."""
        from bridge.operations.changes import MessageChanges, scheduled, sent_again
        from bridge.relay.plan.source_identity import derived_message_id

        fields: dict[str, object] = {}
        if id_source is not None:
            new_id = derived_message_id(id_source, taken.number, taken.enqueued_ms)
            fields["message_id"] = new_id
        changes = MessageChanges(fields, keeps_death=not is_dead_letter_path(self._head.entity))
        copy = sent_again(taken.message, now_ms(), changes)
        due_ms = taken.message.scheduled_enqueue_time_ms
        if taken.message.state != "scheduled" or due_ms is None:
            return copy
        return scheduled(copy, due_ms)

    async def list_rest(self, doubtful_line: int) -> int:
        """List what is not sent, and return the exit code.

        Args:
            doubtful_line: up to this line the doubtful ones are sent.
        """
        of, output = self._head.entity, self._output
        there: list[tuple[int, UndoOriginal]] = []
        unknown: list[tuple[int, UndoOriginal]] = []
        async for chunk in chunks(self._namespace, self._head, self._lines.taken()):
            for line, taken, is_there in chunk:
                if is_there:
                    there.append((line, UndoOriginal.of(taken)))
                elif self._fate(taken) is TakenFate.DOUBTFUL and line > doubtful_line:
                    unknown.append((line, UndoOriginal.of(taken)))
        if not there and not unknown:
            return ExitCode.DONE
        output.table(
            [
                *original_rows(there, "it was not removed"),
                *original_rows(unknown, "it was removed, or somebody has received it since"),
            ]
        )
        if there:
            output.say(f"{messages(len(there))} of {of} were not removed, and are there still.")
        if unknown:
            output.say(
                f"{messages(len(unknown))} of {of} are not sent: the command ended before it knew "
                "that they were removed, and they are not there. Look whether somebody has "
                "received them since; if not, --doubtful sends them, too."
            )
        return ExitCode.DIFFERENCES
