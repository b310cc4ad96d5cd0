"""`busbridge undo`: puts back what was purged, and withdraws what was sent again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.commands.errors import WrongInput
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.taking_options import WAIT_S, check_taking
from bridge.commands.target import add_target, target_of
from bridge.operations.taking_rules import HOLD

if TYPE_CHECKING:
    from bridge.operations.undo_file import UndoHead


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "undo",
        "undo what purge, deferred take, dead-letter purge or dead-letter resubmit has done, from "
        "the file of its --undo",
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
        "(default: the entity that they were purged from, or whose dead letters they were; a "
        "subscription alone, at a bridge)",
    )  # fmt: skip
    parser.add_argument(
        "--new-id", action="store_true",
        help="of a purge: a MessageId that is made of source, number and time, for a target that "
        "detects duplicates",
    )  # fmt: skip
    parser.add_argument(
        "--doubtful", action="store_true",
        help="of a purge: send also those of which the file does not say that they were removed, "
        "and which are not there; who has received one since gets it twice",
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
    from bridge.commands.progress_record import locked
    from bridge.commands.undo_purge import put_back
    from bridge.commands.undo_reading import UndoLines
    from bridge.commands.undo_resubmit import withdraw
    from bridge.operations.lines.scalar_values import ValueRefused
    from bridge.operations.undo_file import UndoHead
    from bridge.remote.namespace import RemoteNamespace

    check_taking(arguments)
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
        lines = UndoLines(path, file)
        async with RemoteNamespace(target.address, target.credential) as namespace:
            if head.verb == "purge":
                return await put_back(namespace, target, lines, head, arguments, output)
            return await withdraw(namespace, lines, head, arguments, output)


def _check_options(arguments: argparse.Namespace, head: UndoHead) -> None:
    """Raise WrongInput for an option of the other kind of file."""
    others = {
        "purge": {"--at": arguments.at is not None},
        "resubmit": {
            "--to": arguments.to is not None,
            "--new-id": arguments.new_id,
            "--doubtful": arguments.doubtful,
        },
    }[head.verb]
    for name, is_given in others.items():
        if is_given:
            raise WrongInput(f"{name}: the file is of a {head.verb}.")
