"""`busbridge dead-letter`: what is dead in an entity, and what then becomes of it."""

from __future__ import annotations

from bridge.commands import dead_letter_look, dead_letter_purge, dead_letter_resubmit
from bridge.commands.parser import Commands

VERBS = dead_letter_look, dead_letter_resubmit, dead_letter_purge
"""Modules with the group's commands."""


def register(commands: Commands) -> None:
    """Add the command with its own commands."""
    parser = commands.add_parser(
        "dead-letter", help="look at dead letters, send them again, keep them, remove them"
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for each in VERBS:
        each.register(verbs)
