"""`busbridge deferred`: messages that a consumer has put aside, and nobody may remember."""

from __future__ import annotations

from bridge.commands import deferred_ls, deferred_release, deferred_take
from bridge.commands.parser import Commands

VERBS = deferred_ls, deferred_take, deferred_release
"""Modules with the group's commands."""


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser(
        "deferred", help="look at deferred messages, take them out, have them received again"
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for each in VERBS:
        each.register(verbs)
