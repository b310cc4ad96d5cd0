"""Options that say which messages a command means."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.commands.errors import WrongInput

if TYPE_CHECKING:
    from bridge.operations.selection import MessageSelection


def add_selection(parser: argparse.ArgumentParser, *, limit: str, has_times: bool = True) -> None:
    """Add `--where`, `--number`, `--limit` and the options of enqueued times.

    Args:
        limit: what the limit bounds, as "how many to move at most".
        has_times: whether the messages have been enqueued.
    """
    group = parser.add_argument_group("which messages", "Without any: all.")
    group.add_argument(
        "--where", metavar="SQL",
        help="those for which this is true: a subscription's filter, with sys. and your own "
        "properties, and body('$.a.b') for a body of JSON",
    )  # fmt: skip
    group.add_argument(
        "--number", type=int, action="append", default=[], metavar="N", dest="numbers",
        help="the message of this sequence number; may be given again. One that is not found is "
        "named, with the exit code 3",
    )  # fmt: skip
    if has_times:
        group.add_argument(
            "--enqueued-from", metavar="TIME",
            help="those enqueued then or later: 2026-11-27T00:00:00Z; a dead letter has the time "
            "that it had alive",
        )  # fmt: skip
        group.add_argument("--enqueued-before", metavar="TIME", help="those enqueued before")
    group.add_argument("--limit", type=int, metavar="N", help=f"{limit} (default: all)")


def selection_of(arguments: argparse.Namespace) -> MessageSelection:
    """Return what the options ask for.

    Raises:
        WrongInput: the condition is none, a time is none, or the limit is not above 0.
    """
    from uuid import uuid4

    from bridge.model.filters.errors import InvalidRule
    from bridge.operations.selection import MessageSelection

    if arguments.limit is not None and arguments.limit < 1:
        raise WrongInput("--limit is at least 1.")
    try:
        found = MessageSelection.of(arguments.where, uuid4, numbers=arguments.numbers)
    except InvalidRule as error:
        raise WrongInput(f"--where: {error}") from None
    return replace(
        found,
        enqueued_from_ms=time_in("--enqueued-from", getattr(arguments, "enqueued_from", None)),
        enqueued_before_ms=time_in(
            "--enqueued-before", getattr(arguments, "enqueued_before", None)
        ),
    )


def time_in(option: str, text: str | None) -> int | None:
    """Return the time of an option, UTC ms; WrongInput: it is none."""
    from bridge.operations.lines.scalar_values import ValueRefused, time_ms_of

    try:
        return None if text is None else time_ms_of(text)
    except ValueRefused as error:
        raise WrongInput(f"{option}: {error}.") from None
