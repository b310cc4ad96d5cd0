"""Options that say which messages a command means."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bridge.commands.errors import WrongInput

if TYPE_CHECKING:
    from bridge.operations.selection import MessageSelection


def add_selection(parser: argparse.ArgumentParser, *, limit: str, has_numbers: bool = True) -> None:
    """Add `--where`, `--number` and `--limit`.

    Args:
        limit: what the limit bounds, as "how many to move at most".
    """
    group = parser.add_argument_group("which messages", "Without any: all.")
    group.add_argument(
        "--where", metavar="SQL",
        help="those for which this is true: a subscription's filter, with sys. and your own "
        "properties, and body('$.a.b') for a body of JSON",
    )  # fmt: skip
    if has_numbers:
        group.add_argument(
            "--number", type=int, action="append", default=[], metavar="N", dest="numbers",
            help="the message of this sequence number; may be given again",
        )  # fmt: skip
    group.add_argument("--limit", type=int, metavar="N", help=f"{limit} (default: all)")


def selection_of(arguments: argparse.Namespace) -> MessageSelection:
    """Return what the options ask for.

    Raises:
        WrongInput: the condition is none, or the limit is not above 0.
    """
    from uuid import uuid4

    from bridge.model.filters.errors import InvalidRule
    from bridge.operations.selection import MessageSelection

    if arguments.limit is not None and arguments.limit < 1:
        raise WrongInput("--limit is at least 1.")
    try:
        return MessageSelection.of(
            arguments.where, uuid4, numbers=getattr(arguments, "numbers", ())
        )
    except InvalidRule as error:
        raise WrongInput(f"--where: {error}") from None
