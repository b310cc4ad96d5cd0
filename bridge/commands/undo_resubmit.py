"""Undoes a resubmit: what still waits at its target is dead-lettered again."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING

from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.taking import take
from bridge.commands.taking_options import messages
from bridge.commands.undo_reading import UndoLines, UndoOriginal, chunks, original_rows

if TYPE_CHECKING:
    from bridge.commands.taking_run import Judged
    from bridge.operations.undo_file import AwaitedCopies, UndoHead
    from bridge.remote.delivery import RemoteDelivery
    from bridge.remote.namespace import RemoteNamespace


async def withdraw(
    namespace: RemoteNamespace,
    lines: UndoLines,
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
    rest: dict[int, UndoOriginal] = {}
    there: list[tuple[int, UndoOriginal]] = []
    async for chunk in chunks(namespace, head, lines.taken()):
        for line, taken, is_there in chunk:
            if is_there:
                there.append((line, UndoOriginal.of(taken)))
                continue
            with suppress(ValueRefused):  # it had no copy
                awaited.add(taken, line)
            rest[line] = UndoOriginal.of(taken)
    wanted, sent = len(awaited), len(rest)
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
    if len(gone) == sent:
        output.say(
            f"No copy of the {messages(sent)} was found at {to}: this was undone before, or they "
            "are received, locked by somebody, or deferred."
        )
        gone = []
    if gone or there:
        output.table(
            [
                *original_rows(gone, f"no copy of it was found at {to}"),
                *original_rows(there, "it was not removed"),
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
    return ExitCode.DIFFERENCES if rest else code


class _Judge:
    """Says which messages are copies; each has the fate of its original."""

    def __init__(self, awaited: AwaitedCopies, rest: dict[int, UndoOriginal]) -> None:
        self._awaited = awaited
        self._rest = rest
        self._known: dict[tuple[int, int], UndoOriginal] = {}

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
