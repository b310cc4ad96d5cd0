"""`busbridge schedule`: messages that are enqueued later."""

from __future__ import annotations

from bridge.commands import schedule_cancel, schedule_ls, schedule_move
from bridge.commands.parser import Commands

VERBS = schedule_ls, schedule_move, schedule_cancel
"""Modules with the group's commands."""


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser(
        "schedule", help="look at scheduled messages, move them to another time, cancel them"
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for each in VERBS:
        each.register(verbs)
